//! Random filters against their definition, and one image against many.

use dpsgd_engine::Level;
use dpsgd_engine::random_filters::{
    FILTERS, GRID, LEAST_VARIANCE, RandomFilters, SIDE, THRESHOLD, View, dictionary,
};

/// An image with an edge, a texture and a gradient.
fn image([height, width, colours]: [usize; 3]) -> Vec<f32> {
    (0..height * width * colours)
        .map(|i| {
            let (y, x, colour) = (i / colours / width, i / colours % width, i % colours);
            let texture = ((y * 3 + x * 7 + colour * 2) % 11) as f32 / 11.0;
            let edge = if 2 * x > y + 9 { 0.6 } else { 0.1 };
            0.3 * texture + edge + 0.01 * y as f32
        })
        .collect()
}

fn mirrored(image: &[f32], [_, width, colours]: [usize; 3]) -> Vec<f32> {
    let rows = image.chunks_exact(width * colours);
    rows.flat_map(|row| row.chunks_exact(colours).rev().flatten().copied()).collect()
}

fn transformed(shape: [usize; 3], view: View, level: Level, images: &[f32]) -> Vec<f32> {
    let filters = RandomFilters::new(shape, view, level).unwrap();
    let features: usize = filters.features().iter().product();
    let mut out = vec![f32::NAN; images.len() / shape.iter().product::<usize>() * features];
    filters.transform(images, &mut out);
    out
}

/// The mean of the rectified products over the patches whose corner lies in the given ranges.
fn mean(
    image: &[f32],
    [_, width, colours]: [usize; 3],
    filter: &[f64],
    [rows, columns]: [std::ops::Range<usize>; 2],
) -> [f64; 2] {
    let (mut sums, mut count) = ([0.0; 2], 0.0);
    for (y, x) in rows.flat_map(|y| columns.clone().map(move |x| (y, x))) {
        let at = |i: usize| {
            let (down, right) = (i / (SIDE * colours), i % (SIDE * colours));
            f64::from(image[((y + down) * width + x) * colours + right])
        };
        let patch: Vec<f64> = (0..filter.len()).map(at).collect();
        let mean = patch.iter().sum::<f64>() / patch.len() as f64;
        let variance = patch.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / patch.len() as f64;
        let product = patch.iter().zip(filter).map(|(x, w)| (x - mean) * w).sum::<f64>()
            / (variance + LEAST_VARIANCE).sqrt();
        let excess = [product, -product].map(|r| (r - f64::from(THRESHOLD)).max(0.0));
        sums = [sums[0] + excess[0], sums[1] + excess[1]];
        count += 1.0;
    }
    sums.map(|sum| sum / count)
}

/// The places of a cell: those that `place * cells / places` sends there.
fn places(cell: usize, cells: usize, places: usize) -> std::ops::Range<usize> {
    (cell * places).div_ceil(cells)..((cell + 1) * places).div_ceil(cells)
}

#[test]
fn it_is_its_definition() {
    for (shape, level) in [[12, 17, 1], [13, 10, 3]].into_iter().zip(Level::available().into_iter().cycle()) {
        let colours = shape[2];
        let (image, filters) = (image(shape), dictionary::filters(colours));
        let mirror = mirrored(&image, shape);
        let [down, across] = [shape[0] - SIDE + 1, shape[1] - SIDE + 1];
        let plain = transformed(shape, View::Plain, level, &image);
        let both = transformed(shape, View::Mirrored, level, &image);
        assert_eq!((plain.len(), both.len()), (GRID * GRID * 2 * FILTERS, GRID * GRID * FILTERS));
        let close = |ours: f32, expected: f64| {
            // The square root of a sum that is nearly 0 magnifies its rounding.
            let ours = f64::from(ours);
            assert!((ours * ours - expected).abs() < 2e-5 * (1.0 + expected), "{ours}² for {expected}");
        };
        for (f, filter) in filters.chunks_exact(SIDE * SIDE * colours).enumerate().step_by(17) {
            for (y, x) in (0..GRID).flat_map(|y| (0..GRID).map(move |x| (y, x))) {
                let rows = places(y, GRID, down);
                let expected = mean(&image, shape, filter, [rows.clone(), places(x, GRID, across)]);
                for sign in 0..2 {
                    close(plain[((y * GRID + x) * 2 + sign) * FILTERS + f], expected[sign]);
                }
                if x < GRID / 2 {
                    let columns = places(x, GRID / 2, across.div_ceil(2));
                    let one = mean(&image, shape, filter, [rows.clone(), columns.clone()]);
                    let other = mean(&mirror, shape, filter, [rows, columns]);
                    for sign in 0..2 {
                        let expected = (one[sign] + other[sign]) / 2.0;
                        close(both[((y * GRID / 2 + x) * 2 + sign) * FILTERS + f], expected);
                    }
                }
            }
        }
    }
}

#[test]
fn an_image_and_its_mirror_image_have_the_same_mirrored_features() {
    let shape = [14, 15, 3];
    let image = image(shape);
    let ours = transformed(shape, View::Mirrored, Level::best(), &image);
    let theirs = transformed(shape, View::Mirrored, Level::best(), &mirrored(&image, shape));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert!((ours * ours - theirs * theirs).abs() < 1e-5, "{ours} {theirs}");
    }
    let plain = transformed(shape, View::Plain, Level::best(), &image);
    assert_ne!(plain, transformed(shape, View::Plain, Level::best(), &mirrored(&image, shape)));
}

#[test]
fn an_image_is_transformed_alone_at_every_level() {
    let shape = [12, 11, 3];
    let length = shape.iter().product::<usize>();
    let images: Vec<f32> = (0..3 * length).map(|i| (i * 37 % 251) as f32 / 251.0).collect();
    for view in [View::Plain, View::Mirrored] {
        let together = transformed(shape, view, Level::best(), &images);
        let features = together.len() / 3;
        for (i, image) in images.chunks_exact(length).enumerate() {
            let alone = transformed(shape, view, Level::best(), image);
            assert_eq!(alone, together[i * features..(i + 1) * features], "image {i}");
        }
        for level in Level::available() {
            for (ours, best) in transformed(shape, view, level, &images).iter().zip(&together) {
                assert!((ours * ours - best * best).abs() < 1e-5, "{level:?}: {ours} {best}");
            }
        }
    }
}

#[test]
fn a_flat_image_has_no_patterns() {
    let features = transformed([9, 9, 1], View::Plain, Level::best(), &[0.7; 81]);
    assert!(features.iter().all(|&feature| feature == 0.0), "{features:?}");
}

#[test]
fn an_unsuitable_image_is_refused() {
    for shape in [[8, 32, 1], [32, 8, 3], [32, 32, 5], [32, 32, 0]] {
        let error = RandomFilters::new(shape, View::Plain, Level::best()).unwrap_err().to_string();
        let [height, width, colours] = shape;
        let image = format!("random-filters: an image of {height} × {width} pixels in {colours} colours;");
        assert!(error.starts_with(&image) && error.contains("at least 9 × 9"), "{error}");
    }
}
