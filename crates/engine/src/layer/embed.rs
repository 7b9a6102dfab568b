//! Embeddings of the categories of a row.
//!
//! A category is one of n numbers that are 0 or 1, all 0 if it is missing, so that its vector is the product
//! of these numbers with a table of n rows. Only rows of the table whose number is not 0 take part.

use dpsgd_kernels::{Level, elementwise};

/// The first layer of a network for rows.
#[derive(Clone, Debug)]
pub(crate) struct Embed {
    pub input: usize,
    pub output: usize,
    /// How many numbers each column has in the input; more than one is a category.
    pub columns: Vec<usize>,
    /// The length of a category's vector.
    pub features: usize,
    /// Where the tables begin in the flat vector, one after the other: \[category\]\[feature\].
    pub weights: usize,
    /// Where their gradient begins among the materialised ones.
    pub dense: usize,
}

/// Where a column is in the input and in the output; and its table, if it has one.
struct Place {
    input: usize,
    output: usize,
    width: usize,
    table: Option<usize>,
}

impl Embed {
    /// The numbers of all tables.
    pub fn numbers(&self) -> usize {
        self.columns.iter().filter(|width| **width > 1).sum::<usize>() * self.features
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        let [mut input, mut output, mut table] = [0; 3];
        self.columns.iter().map(move |&width| {
            let place = Place { input, output, width, table: (width > 1).then_some(table) };
            input += width;
            output += if width > 1 { self.features } else { 1 };
            table += if width > 1 { width * self.features } else { 0 };
            place
        })
    }

    pub fn forward(&self, level: Level, w: &[f32], x: &[f32], y: &mut [f32]) {
        for Place { input, output, width, table } in self.places() {
            let Some(table) = table else {
                y[output] = x[input];
                continue;
            };
            let y = &mut y[output..][..self.features];
            y.fill(0.0);
            let rows = w[self.weights + table..].chunks_exact(self.features);
            for (x, row) in x[input..][..width].iter().zip(rows) {
                if *x != 0.0 {
                    elementwise::add_scaled(level, *x, row, y);
                }
            }
        }
    }

    /// Adds the gradient of the tables for one sample to `gradient`, which begins with the first table.
    pub fn gradient(&self, level: Level, x: &[f32], dy: &[f32], gradient: &mut [f32]) {
        for Place { input, output, width, table } in self.places() {
            let Some(table) = table else { continue };
            let dy = &dy[output..][..self.features];
            let rows = gradient[table..].chunks_exact_mut(self.features);
            for (x, row) in x[input..][..width].iter().zip(rows) {
                if *x != 0.0 {
                    elementwise::add_scaled(level, *x, dy, row);
                }
            }
        }
    }
}
