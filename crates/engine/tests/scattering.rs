//! The scattering transform against kymatio's, against its definition, and one image against many.

use std::f64::consts::{PI, TAU};

use dpsgd_engine::Level;
use dpsgd_engine::scattering::{CHANNELS, Scattering};

/// An image with an edge, a texture and a gradient.
fn pixel(y: usize, x: usize) -> f32 {
    let texture = ((y * 3 + x * 7) % 11) as f64 / 11.0;
    let edge = if 2 * x > y + 9 { 0.6 } else { 0.1 };
    (0.5 * texture + edge + 0.01 * y as f64) as f32
}

fn image(height: usize, width: usize) -> Vec<f32> {
    (0..height * width).map(|i| pixel(i / width, i % width)).collect()
}

fn transformed(shape: [usize; 3], level: Level, images: &[f32]) -> Vec<f32> {
    let scattering = Scattering::new(shape, level).unwrap();
    let features: usize = scattering.features().iter().product();
    let mut out = vec![f32::NAN; images.len() / shape.iter().product::<usize>() * features];
    scattering.transform(images, &mut out);
    out
}

#[test]
fn it_is_the_transform_of_kymatio() {
    let mut lines = 0;
    for line in include_str!("golden/scattering.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut numbers = line.split(' ');
        let [height, width, place] = [(); 3].map(|()| numbers.next().unwrap().parse::<usize>().unwrap());
        let theirs: Vec<f32> = numbers.map(|number| number.parse().unwrap()).collect();
        for level in Level::available() {
            let ours = transformed([height, width, 1], level, &image(height, width));
            for (channel, theirs) in theirs.iter().enumerate() {
                let ours = ours[place * CHANNELS + channel];
                assert!((ours - theirs).abs() < 1e-5, "{height} × {width}, {channel}: {ours} for {theirs}");
            }
        }
        assert_eq!(theirs.len(), CHANNELS);
        lines += 1;
    }
    assert_eq!(lines, 9);
}

/// |x ∗ ψ| of a periodic plane by the definition of the convolution, with a Morlet wavelet by its formula.
fn modulus(plane: &[f64], [height, width]: [usize; 2], scale: u32, orientation: usize) -> Vec<f64> {
    let stretch = f64::from(1_u32 << scale);
    let (sigma, frequency) = (0.8 * stretch, 0.75 * PI / stretch);
    let angle = (3.0 - orientation as f64) * PI / 8.0;
    let reach = 16_isize;
    let points: Vec<(isize, isize)> =
        (-reach..=reach).flat_map(|y| (-reach..=reach).map(move |x| (y, x))).collect();
    let value = |&(y, x): &(isize, isize)| {
        let (y, x) = (y as f64, x as f64);
        let (across, along) = (y * angle.cos() + x * angle.sin(), x * angle.cos() - y * angle.sin());
        let height = (-0.5 * (across.powi(2) + 0.25 * along.powi(2)) / sigma.powi(2)).exp();
        let height = height / (2.0 * TAU * sigma * sigma);
        [height * (frequency * across).cos(), height * (frequency * across).sin(), height]
    };
    let values: Vec<[f64; 3]> = points.iter().map(value).collect();
    let sum = |part: usize| values.iter().map(|value| value[part]).sum::<f64>();
    let mean = [sum(0) / sum(2), sum(1) / sum(2)];
    (0..height * width)
        .map(|at| {
            let (mut re, mut im) = (0.0, 0.0);
            for (&(dy, dx), value) in points.iter().zip(&values) {
                let y = ((at / width) as isize - dy).rem_euclid(height as isize) as usize;
                let x = ((at % width) as isize - dx).rem_euclid(width as isize) as usize;
                re += plane[y * width + x] * (value[0] - mean[0] * value[2]);
                im += plane[y * width + x] * (value[1] - mean[1] * value[2]);
            }
            re.hypot(im)
        })
        .collect()
}

/// The mean around a pixel of a periodic plane.
fn mean(plane: &[f64], [height, width]: [usize; 2], at: [usize; 2]) -> f64 {
    let bell = |d: isize| (-(d * d) as f64 / (2.0 * 1.6 * 1.6)).exp() / (TAU * 1.6 * 1.6).sqrt();
    let mut sum = 0.0;
    for dy in -12..=12_isize {
        for dx in -12..=12_isize {
            let y = (at[0] as isize + dy).rem_euclid(height as isize) as usize;
            let x = (at[1] as isize + dx).rem_euclid(width as isize) as usize;
            sum += bell(dy) * bell(dx) * plane[y * width + x];
        }
    }
    sum
}

/// Wavelets by convolution, whatever the speed: the image's mean and the fine first order have no other
/// approximation than kymatio's π of 3.1415, 3e-5 of them.
#[test]
fn it_is_its_definition() {
    let (height, width) = (16, 20);
    let size = [height + 8, width + 8];
    let reflected = |at: usize, length: usize| {
        let last = length as isize - 1;
        let at = (at as isize - 4).rem_euclid(2 * last);
        at.min(2 * last - at) as usize
    };
    let padded: Vec<f64> = (0..size[0] * size[1])
        .map(|i| f64::from(pixel(reflected(i / size[1], height), reflected(i % size[1], width))))
        .collect();
    let planes = std::iter::once(padded.clone()).chain((0..8).map(|k| modulus(&padded, size, 0, k)));
    let ours = transformed([height, width, 1], Level::best(), &image(height, width));
    for (channel, plane) in planes.enumerate() {
        for place in 0..height * width / 16 {
            let at = [4 + 4 * (place / (width / 4)), 4 + 4 * (place % (width / 4))];
            let expected = mean(&plane, size, at);
            let ours = f64::from(ours[place * CHANNELS + channel]);
            assert!((ours - expected).abs() < 1e-4 * expected.max(0.1), "{channel}: {ours} for {expected}");
        }
    }
}

#[test]
fn an_image_is_transformed_alone_and_its_colours_too() {
    let shape = [12, 16, 3];
    let length = shape.iter().product::<usize>();
    let images: Vec<f32> = (0..19 * length).map(|i| (i * 37 % 251) as f32 / 251.0).collect();
    let together = transformed(shape, Level::best(), &images);
    let features = together.len() / 19;
    assert_eq!(features, 3 * 4 * 243);
    for (i, image) in images.chunks_exact(length).enumerate() {
        let alone = transformed(shape, Level::best(), image);
        assert_eq!(alone, together[i * features..(i + 1) * features], "image {i}");
        for colour in 0..3 {
            let plane: Vec<f32> = image.iter().skip(colour).step_by(3).copied().collect();
            let grey = transformed([12, 16, 1], Level::best(), &plane);
            let coloured = alone.chunks_exact(243).flat_map(|place| &place[81 * colour..81 * (colour + 1)]);
            assert!(coloured.eq(grey.iter()), "image {i}, colour {colour}");
        }
    }
    for level in Level::available() {
        assert_eq!(transformed(shape, level, &images), together, "{level:?}");
    }
}

#[test]
fn wavelets_do_not_see_a_constant() {
    for place in transformed([16, 16, 1], Level::best(), &[0.7; 256]).chunks_exact(CHANNELS) {
        assert!((place[0] - 0.7).abs() < 1e-4, "{}", place[0]);
        assert!(place[1..].iter().all(|value| value.abs() < 1e-5), "{place:?}");
    }
}

#[test]
fn other_sizes_are_refused() {
    for shape in [[30, 28, 1], [4, 12, 1], [28, 27, 3]] {
        let refused = Scattering::new(shape, Level::best()).unwrap_err().to_string();
        assert!(refused.contains("multiples of 4"), "{refused}");
    }
}
