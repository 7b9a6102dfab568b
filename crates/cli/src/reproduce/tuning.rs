//! The choice of C for a setting, by climbing over 1, 3, 10, 30 … on short runs, measured on training samples that
//! are held out. The test set is not looked at. (The paper says only that C "is fine-tuned for each separate setting".)

use dpsgd_data::Known;

use super::experiment::{Experiment, Part};
use super::laboratory::Laboratory;
use super::store::Tuning;
use crate::Failure;

/// How long the short runs are.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// The training samples used.
    pub first: u64,
    /// The training samples held out.
    pub last: u64,
    /// Epochs.
    pub epochs: u64,
}

impl Length {
    /// Of the whole reproduction, or of the quick one.
    pub fn of(data: Known, quick: bool) -> Self {
        match (quick, data) {
            (true, _) => Self { first: 4_000, last: 1_000, epochs: 1 },
            (false, Known::Cifar10) => Self { first: 20_000, last: 10_000, epochs: 1 },
            (false, _) => Self { first: 20_000, last: 10_000, epochs: 5 },
        }
    }

    /// The samples that choosing one C is likely to take.
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

/// The C for an experiment, which need not have one yet; `start` is tried first. None if it has not been chosen and is
/// not `wanted`.
pub fn tuned(
    laboratory: &mut Laboratory,
    name: &str,
    experiment: &Experiment,
    length: Length,
    start: f64,
    wanted: bool,
) -> Result<Option<f64>, Failure> {
    let mut short = experiment.clone();
    short.settings.clip = None;
    short.part = Part::HeldOut { first: length.first, last: length.last };
    let file = format!("tune-{name}");
    if let Some(found) = laboratory.store().tuning(&file, &short, length.epochs)? {
        laboratory.progress.spent_on_tuning(short.data(), length.work());
        return Ok(found.best().map(|best| best.0));
    }
    if !wanted {
        return Ok(None);
    }
    let mut tried: Vec<(i32, f64)> = Vec::new();
    let mut next = vec![rung_of(start).clamp(RUNGS.0, RUNGS.1)];
    while let Some(k) = next.pop() {
        let with = Experiment {
            settings: crate::train::settings::TrainSettings { clip: Some(rung(k)), ..short.settings.clone() },
            ..short.clone()
        };
        let accuracy = laboratory.measure(&format!("{file} C = {}", rung(k)), &with, length.epochs)?;
        tried.push((k, accuracy));
        let best =
            tried.iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map_or(k, |best| best.0);
        if next.is_empty() {
            let untried = |k: &i32| (RUNGS.0..=RUNGS.1).contains(k) && !tried.iter().any(|done| done.0 == *k);
            next = [best - 1, best + 1].into_iter().filter(untried).collect();
        }
    }
    let tried = tried.into_iter().map(|(k, accuracy)| (rung(k), accuracy)).collect();
    let tuning = Tuning { experiment: short, epochs: length.epochs, tried };
    laboratory.store().save_tuning(&file, &tuning)?;
    Ok(tuning.best().map(|best| best.0))
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
