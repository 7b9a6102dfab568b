//! Random filters of an image: features that need no training data.
//!
//! The features of Coates, Ng and Lee (2011), with a dictionary that nobody's images are needed for. Every
//! patch of 6 × 6 pixels is brought to mean 0 and variance 1, and its product with each of 512 filters is
//! taken. Filters are patches of drawn images, whitened ([`dictionary`]). Both signs are rectified beyond a
//! threshold, max(0, r − 1) and max(0, −r − 1), averaged over the places of each cell of a grid of 4 × 4, and
//! the square root is taken, which brings rare and frequent patterns to one scale.
//!
//! [`View::Mirrored`] averages the features of an image and of its mirror image, so that both have the same.
//! The right half of the grid would then repeat the left one, so two columns of cells are left.
//!
//! Each image is transformed on its own, so neighbouring data sets stay neighbours: this costs no privacy.

pub mod dictionary;

use dpsgd_kernels::multiply::{Product, Table, Walk};
use dpsgd_kernels::{Level, SLACK, each3};

/// The number of filters. Each gives two channels: the positive parts of its products come before the
/// negative parts of all.
pub const FILTERS: usize = 512;
/// The pixels on each side of a patch.
pub const SIDE: usize = 6;
/// The cells on each side of the grid.
pub const GRID: usize = 4;
/// What a product must exceed.
pub const THRESHOLD: f32 = 1.0;
/// Added to the variance of a patch of pixels from 0 to 1: a flat one has no structure to be blown up. It is
/// 10 for pixels from 0 to 255, as in the paper's code.
pub const LEAST_VARIANCE: f64 = 10.0 / (255.0 * 255.0);
/// The most colours of an image: the work of whitening grows with their third power.
const COLOURS: usize = 4;

/// What of an image the features see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The image: a grid of 4 × 4 cells.
    Plain,
    /// The image and its mirror image alike: 4 × 2 cells.
    Mirrored,
}

/// The transform for images of one shape.
#[derive(Clone, Debug)]
pub struct RandomFilters {
    shape: [usize; 3],
    view: View,
    level: Level,
    /// The filters in panels, as the product wants them.
    panels: Vec<f32>,
    /// Where the patches of a row begin in it, and where their products go.
    patches: Table,
    products: Table,
    /// The cell of each row and of each column of patches.
    rows: Vec<usize>,
    columns: Vec<usize>,
    /// The number of products averaged in each cell.
    counts: Vec<f32>,
}

/// An image shape that the transform does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "random-filters: an image of {0} × {1} pixels in {2} colours; it needs at least {least} × {least} pixels, \
     and 1 to {COLOURS} colours",
    least = SIDE + GRID - 1
)]
pub struct ShapeError(usize, usize, usize);

impl RandomFilters {
    /// For images of the given shape (height, width, channels).
    pub fn new(shape: [usize; 3], view: View, level: Level) -> Result<Self, ShapeError> {
        let [height, width, colours] = shape;
        if height.min(width) < SIDE + GRID - 1 || !(1..=COLOURS).contains(&colours) {
            return Err(ShapeError(height, width, colours));
        }
        let [down, across] = [height, width].map(|side| side + 1 - SIDE);
        let cells = |places: usize, cells: usize| (0..places).map(move |place| place * cells / places);
        let rows: Vec<usize> = cells(down, GRID).collect();
        let columns: Vec<usize> = match view {
            View::Plain => cells(across, GRID).collect(),
            // The left half. A column in the middle is its own mirror image, and counts as both.
            View::Mirrored => cells(across.div_ceil(2), GRID / 2).collect(),
        };
        let wide = columns.last().map_or(0, |last| last + 1);
        let mut counts = vec![0.0; GRID * wide];
        for row in &rows {
            columns.iter().for_each(|column| counts[row * wide + column] += view.images() as f32);
        }
        Ok(Self {
            shape,
            view,
            level,
            panels: panels(dictionary::filters(colours), level),
            patches: (0..columns.len()).map(|x| x * colours).collect(),
            products: (0..columns.len()).map(|x| x * FILTERS).collect(),
            rows,
            columns,
            counts,
        })
    }

    /// The shape of the result.
    pub fn features(&self) -> [usize; 3] {
        [GRID, self.counts.len() / GRID, 2 * FILTERS]
    }

    /// Transforms images (rows of pixels of channels, one image after the other) into `out`, in the same
    /// layout.
    ///
    /// # Panics
    /// If the slices do not hold equally many images of their shapes.
    pub fn transform(&self, images: &[f32], out: &mut [f32]) {
        let [length, features] = [self.shape, self.features()].map(|shape| shape.iter().product::<usize>());
        assert_eq!(images.len() % length, 0, "whole images");
        assert_eq!(images.len() / length, out.len() / features, "room for their transforms");
        let mut products = vec![0.0; self.columns.len() * FILTERS];
        let mut mirrored = vec![0.0; length];
        for (image, out) in images.chunks_exact(length).zip(out.chunks_exact_mut(features)) {
            out.fill(0.0);
            self.add(image, &mut products, out);
            if self.view == View::Mirrored {
                mirror(image, self.shape, &mut mirrored);
                self.add(&mirrored, &mut products, out);
            }
            for (cell, count) in out.chunks_exact_mut(2 * FILTERS).zip(&self.counts) {
                cell.iter_mut().for_each(|sum| *sum = (*sum / count).sqrt());
            }
        }
    }

    /// Adds the rectified products of the patches to their cells.
    fn add(&self, image: &[f32], products: &mut [f32], out: &mut [f32]) {
        let [_, width, colours] = self.shape;
        let (pitch, run, panel) = (width * colours, SIDE * colours, self.level.panel());
        let wide = self.counts.len() / GRID;
        for (y, row) in self.rows.iter().enumerate() {
            let image = &image[y * pitch..];
            let product = Product {
                a: image,
                rows: self.patches.places(),
                b: &self.panels,
                panel: SIDE * run * panel,
                walk: Walk { outer: SIDE, inner: run, a: [pitch, 1], b: [run * panel, panel] },
                columns: FILTERS,
            };
            product.store(self.level, None, products, self.products.places());
            for (x, (column, products)) in self.columns.iter().zip(products.chunks_exact(FILTERS)).enumerate()
            {
                let patch = (0..SIDE).map(|down| &image[down * pitch + x * colours..][..run]);
                // The filters' numbers sum to 0, so the mean of the patch is gone already.
                let scale = contrast(patch);
                let cell = &mut out[(row * wide + column) * 2 * FILTERS..][..2 * FILTERS];
                let (positive, negative) = cell.split_at_mut(FILTERS);
                each3(
                    positive,
                    negative,
                    products,
                    #[inline(always)]
                    |positive, negative, product| {
                        let product = product * scale;
                        *positive += rectified(product - THRESHOLD);
                        *negative += rectified(-product - THRESHOLD);
                    },
                );
            }
        }
    }
}

impl View {
    /// How many images are seen.
    fn images(self) -> usize {
        match self {
            View::Plain => 1,
            View::Mirrored => 2,
        }
    }
}

#[inline(always)]
fn rectified(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 }
}

/// What a patch, whose rows are given, is multiplied by to have variance 1.
fn contrast<'p>(rows: impl Iterator<Item = &'p [f32]>) -> f32 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for &pixel in rows.flatten() {
        let pixel = f64::from(pixel);
        (count, sum, squares) = (count + 1.0, sum + pixel, squares + pixel * pixel);
    }
    let mean = sum / count;
    (1.0 / ((squares / count - mean * mean).max(0.0) + LEAST_VARIANCE).sqrt()) as f32
}

/// Exchanges left and right.
fn mirror(image: &[f32], [_, width, colours]: [usize; 3], to: &mut [f32]) {
    let pitch = width * colours;
    for (from, to) in image.chunks_exact(pitch).zip(to.chunks_exact_mut(pitch)) {
        for (from, to) in from.chunks_exact(colours).zip(to.chunks_exact_mut(colours).rev()) {
            to.copy_from_slice(from);
        }
    }
}

/// Filters, one after the other, in panels of as many as the product takes at a time.
fn panels(filters: &[f64], level: Level) -> Vec<f32> {
    let (width, length) = (level.panel(), filters.len() / FILTERS);
    let mut panels = vec![0.0; FILTERS.next_multiple_of(width) * length + SLACK];
    for (i, filter) in filters.chunks_exact(length).enumerate() {
        for (k, &weight) in filter.iter().enumerate() {
            panels[(i / width * length + k) * width + i % width] = weight as f32;
        }
    }
    panels
}
