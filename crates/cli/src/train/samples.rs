//! A data set as the engine sees it.

use dpsgd_data::{Dataset, Targets};
use dpsgd_engine::{Samples, Target};

/// The samples of a data set.
pub struct Labelled<'a>(pub &'a Dataset);

impl Samples for Labelled<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn copy_input(&self, index: u32, out: &mut [f32]) {
        self.0.copy_input(index as usize, out);
    }

    fn target(&self, index: u32) -> Target<'_> {
        let index = index as usize;
        match self.0.targets() {
            Targets::Classes { labels, .. } => Target::Class(labels[index]),
            Targets::Values(values) => Target::Values(&values[index..=index]),
        }
    }
}
