//! What the paper prints in Table 3, in percent.

use dpsgd_data::Known;
use dpsgd_privacy::mechanism::SamplingKind;

use crate::experiment::Clipping;

/// The accuracy of a kind of clipping with σ = 2, or of mini-batch SGD without privacy for none.
pub fn accuracy(data: Known, sampling: SamplingKind, clipping: Option<Clipping>) -> f64 {
    let shuffled = sampling == SamplingKind::Shuffle;
    match (data == Known::Cifar10, shuffled, clipping) {
        (true, false, Some(Clipping::Individual)) => 71.09,
        (true, false, Some(Clipping::Batch)) => 71.7,
        (true, false, Some(Clipping::Mixed)) => 63.97,
        (true, false, None) => 68.94,
        (true, true, Some(Clipping::Individual)) => 70.77,
        (true, true, Some(Clipping::Batch)) => 71.52,
        (true, true, Some(Clipping::Mixed)) => 64.68,
        (true, true, None) => 70.14,
        (false, false, Some(Clipping::Individual)) => 98.41,
        (false, false, Some(Clipping::Batch)) => 98.21,
        (false, false, Some(Clipping::Mixed)) => 97.5,
        (false, false, None) => 98.31,
        (false, true, Some(Clipping::Individual)) => 98.38,
        (false, true, Some(Clipping::Batch)) => 98.33,
        (false, true, Some(Clipping::Mixed)) => 96.97,
        // The text says 98.38.
        (false, true, None) => 98.4,
    }
}
