//! The choice of C for a setting, by climbing over 1, 3, 10, 30 … on short runs, measured on training samples
//! that are held out. The test set is not used. (The paper says only that C "is fine-tuned for each separate
//! setting".)

use dpsgd::{Error, RawSettings};
use dpsgd_data::Known;

use crate::experiment::{Experiment, Portion};
use crate::laboratory::Laboratory;
use crate::store::{Measure, Tuning};

/// How long the short runs are.
#[derive(Clone, Copy, Debug)]
pub struct TuningLength {
    /// The training samples used.
    pub first: u64,
    /// The training samples held out.
    pub last: u64,
    /// Epochs.
    pub epochs: u64,
    /// Whether they are compared by their loss, and not by their accuracy.
    pub by_loss: bool,
}

impl TuningLength {
    /// Of the full or the small version.
    pub fn of(data: Known, quick: bool) -> Self {
        // On CIFAR-10 short runs with much noise all have accuracies near 10 %. While steps are small, the
        // loss falls by aC and, because of the noise, rises by bC², both in proportion to the rounds: short
        // and long runs reach the lowest loss at the same C.
        let by_loss = data == Known::Cifar10 && !quick;
        let (first, last, epochs) = if quick { (4_000, 1_000, 1) } else { (20_000, 10_000, 5) };
        Self { first, last, epochs, by_loss }
    }

    /// The samples that the choice of one C is likely to take.
    pub fn work(&self) -> u64 {
        // The start, both neighbours, and often one more.
        4 * self.first * self.epochs
    }
}

/// 10^(k/2), to one digit: 0.1, 0.3, 1, 3, 10 …
pub fn rung(k: i32) -> f64 {
    let power = k.div_euclid(2);
    let digit = if k.rem_euclid(2) == 0 { "1" } else { "3" };
    // The nearest double to a short decimal, so that it is read back as it was written.
    format!("{digit}e{power}").parse().unwrap_or(1.0)
}

/// The rung of a C.
fn rung_of(clip: f64) -> i32 {
    (2.0 * clip.log10()).round() as i32
}

/// The rungs that are tried: C from 0.0001 to 1000.
const RUNGS: (i32, i32) = (-8, 6);

/// The C for an experiment, which need not have one yet; `start` is tried first. None if it has not been
/// chosen before and is not `wanted` now.
pub fn tuned(
    laboratory: &mut Laboratory<'_>,
    name: &str,
    experiment: &Experiment,
    length: TuningLength,
    start: f64,
    wanted: bool,
) -> Result<Option<f64>, Error> {
    let mut short = experiment.clone();
    short.settings.clip = None;
    short.part = Portion::HeldOut { first: length.first, last: length.last };
    let file = format!("tune-{name}");
    if let Some(found) = laboratory.store().tuning(&file, &short, length.epochs, length.by_loss)? {
        laboratory.progress.spent_on_tuning(short.data(), length.work());
        return Ok(found.by.best(&found.tried));
    }
    if !wanted {
        return Ok(None);
    }
    let by = if length.by_loss {
        Measure::Loss(Measure::Loss(0.0).of(&laboratory.untrained(&short)?))
    } else {
        Measure::Accuracy
    };
    let mut tried: Vec<(f64, f64)> = Vec::new();
    let mut next = vec![rung_of(start).clamp(RUNGS.0, RUNGS.1)];
    while let Some(k) = next.pop() {
        let settings = RawSettings { clip: Some(rung(k)), ..short.settings.clone() };
        let with = Experiment { settings, ..short.clone() };
        let point = laboratory.measure(&format!("{file} C = {}", rung(k)), &with, length.epochs)?;
        tried.push((rung(k), by.of(&point)));
        let best = by.best(&tried).map_or(k, rung_of);
        if next.is_empty() {
            let untried = |k: &i32| {
                (RUNGS.0..=RUNGS.1).contains(k) && !tried.iter().any(|(clip, _)| rung_of(*clip) == *k)
            };
            next = [best - 1, best + 1].into_iter().filter(untried).collect();
        }
    }
    let tuning = Tuning { experiment: short, epochs: length.epochs, by, tried };
    laboratory.store().save_tuning(&file, &tuning)?;
    Ok(by.best(&tuning.tried))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_short_decimals() {
        for (k, clip) in [(-4, 0.01), (-3, 0.03), (-1, 0.3), (0, 1.0), (1, 3.0), (4, 100.0)] {
            assert_eq!((rung(k), rung_of(clip)), (clip, k));
        }
    }
}
