//! The scattering transform against its definition, in double precision and with no regard for time.

use dpsgd_engine::kernel::Level;
use dpsgd_engine::scattering::{Scattering, angle, gaussian, morlet};

type Image = Vec<Vec<f64>>;

fn reflected(at: isize, length: usize) -> usize {
    let last = length as isize - 1;
    let at = at.rem_euclid(2 * last);
    at.min(2 * last - at) as usize
}

/// |x ∗ ψ| at every pixel.
fn modulus(image: &Image, wavelet: &[(isize, isize, [f64; 2])]) -> Image {
    let (height, width) = (image.len(), image[0].len());
    let at = |y: usize, x: usize| {
        let (mut re, mut im) = (0.0, 0.0);
        for &(dy, dx, value) in wavelet {
            let pixel = image[reflected(y as isize - dy, height)][reflected(x as isize - dx, width)];
            re += value[0] * pixel;
            im += value[1] * pixel;
        }
        re.hypot(im)
    };
    (0..height).map(|y| (0..width).map(|x| at(y, x)).collect()).collect()
}

fn every_second(image: &Image) -> Image {
    image.iter().step_by(2).map(|row| row.iter().step_by(2).copied().collect()).collect()
}

/// The mean around a pixel.
fn mean(image: &Image, width: f64, y: usize, x: usize) -> f64 {
    let bell = gaussian(width);
    let reach = (bell.len() / 2) as isize;
    let mut sum = 0.0;
    for (i, a) in bell.iter().enumerate() {
        for (j, b) in bell.iter().enumerate() {
            let row = reflected(y as isize + i as isize - reach, image.len());
            let column = reflected(x as isize + j as isize - reach, image[0].len());
            sum += a * b * image[row][column];
        }
    }
    sum
}

/// The means before they are normalised, in the order of the channels.
fn oracle(image: &Image) -> Vec<Vec<f64>> {
    let places: Vec<(usize, usize)> =
        (0..image.len() / 4).flat_map(|y| (0..image[0].len() / 4).map(move |x| (y, x))).collect();
    let whole = |of: &Image| places.iter().map(|(y, x)| mean(of, 1.6, 4 * y, 4 * x)).collect::<Vec<f64>>();
    let half = |of: &Image| {
        let of = every_second(of);
        places.iter().map(|(y, x)| mean(&of, 0.8, 2 * y, 2 * x)).collect::<Vec<f64>>()
    };
    let mut channels = vec![whole(image)];
    channels.extend((0..8).map(|k| whole(&modulus(image, &morlet(0, angle(k))))));
    channels.extend((0..8).map(|k| half(&modulus(image, &morlet(1, angle(k))))));
    for k in 0..8 {
        let first = modulus(image, &morlet(0, angle(k)));
        channels.extend((0..8).map(|l| half(&modulus(&first, &morlet(1, angle(l))))));
    }
    channels
}

/// Mean 0 and variance 1 over some numbers.
fn normalised(values: &[f64]) -> Vec<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    values.iter().map(|value| (value - mean) / (variance + 1e-6).sqrt()).collect()
}

/// An image with an edge, a texture and a gradient.
fn pixel(y: usize, x: usize, colour: usize) -> f32 {
    let texture = ((y * (3 + colour) + x * 7) % 11) as f32 / 11.0;
    let edge = if 2 * x > y + 9 { 0.6 } else { 0.1 };
    0.5 * texture + edge + 0.01 * y as f32
}

#[test]
fn it_is_its_definition_at_every_level() {
    for [height, width, colours] in [[16, 20, 1], [28, 28, 1], [16, 16, 3]] {
        let image: Vec<f32> = (0..height * width * colours)
            .map(|i| pixel(i / colours / width, i / colours % width, i % colours))
            .collect();
        let planes: Vec<Vec<Vec<f64>>> = (0..colours)
            .map(|colour| {
                let row = |y| (0..width).map(|x| f64::from(pixel(y, x, colour))).collect();
                oracle(&(0..height).map(row).collect())
            })
            .collect();
        // Channels of one kind are normalised together, over the colours.
        let kinds = std::iter::once(0..1).chain((0..10).map(|kind| 1 + 8 * kind..9 + 8 * kind));
        let places = height * width / 16;
        let mut expected = vec![f64::NAN; places * 81 * colours];
        for kind in kinds {
            let at = |channel: usize, colour: usize, place: usize| (place * 81 + channel) * colours + colour;
            let all: Vec<(usize, usize, usize)> = kind
                .flat_map(|channel| {
                    (0..colours)
                        .flat_map(move |colour| (0..places).map(move |place| (channel, colour, place)))
                })
                .collect();
            let values: Vec<f64> =
                all.iter().map(|&(channel, colour, place)| planes[colour][channel][place]).collect();
            for (&(channel, colour, place), value) in all.iter().zip(normalised(&values)) {
                expected[at(channel, colour, place)] = value;
            }
        }
        for level in Level::available() {
            let scattering = Scattering::new([height, width, colours], level).unwrap();
            assert_eq!(scattering.features(), [height / 4, width / 4, 81 * colours]);
            let mut out = vec![f32::NAN; expected.len()];
            scattering.transform(&image, &mut out);
            for (i, (ours, theirs)) in out.iter().zip(&expected).enumerate() {
                assert!((f64::from(*ours) - theirs).abs() < 2e-4, "{i}: {ours} for {theirs} by {level:?}");
            }
        }
    }
}

#[test]
fn wavelets_do_not_see_a_constant() {
    let scattering = Scattering::new([16, 16, 1], Level::best()).unwrap();
    let mut out = vec![f32::NAN; 16 * 81];
    scattering.transform(&[0.7; 256], &mut out);
    assert!(out.iter().all(|value| value.abs() < 1e-2), "{out:?}");
    for j in 0..2 {
        for k in 0..8 {
            let sum = morlet(j, angle(k))
                .iter()
                .fold([0.0; 2], |sum, (.., value)| [sum[0] + value[0], sum[1] + value[1]]);
            assert!(sum[0].abs() < 1e-14 && sum[1].abs() < 1e-14, "{sum:?}");
        }
    }
}

#[test]
fn other_sizes_are_refused() {
    for shape in [[30, 28, 1], [12, 12, 1], [28, 27, 3]] {
        let refused = Scattering::new(shape, Level::best()).unwrap_err().to_string();
        assert!(refused.contains("multiples of 4"), "{refused}");
    }
}
