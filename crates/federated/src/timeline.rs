//! The global model over time.

use serde::{Deserialize, Serialize};

/// The most points that are kept: beyond that, every other one is dropped.
const MOST: usize = 2000;

/// The global model at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Seconds since the beginning: virtual ones in a simulation.
    pub seconds: f64,
    /// Steps of the model.
    pub version: u64,
    /// Updates folded.
    pub updates: u64,
    /// Updates rejected.
    pub rejected: u64,
    /// The mean staleness of all updates folded so far.
    pub staleness: Option<f64>,
    /// Loss on the public test set, where this version was measured.
    pub loss: Option<f64>,
    /// Accuracy on the public test set; none for regression.
    pub accuracy: Option<f64>,
}

/// Moments in order, never more than a few thousand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    points: Vec<Measured>,
}

impl Timeline {
    /// Of moments that were read from somewhere; those out of order are dropped.
    pub fn new(points: impl IntoIterator<Item = Measured>) -> Self {
        let mut timeline = Self::default();
        points.into_iter().for_each(|point| {
            timeline.push(point);
        });
        timeline
    }

    /// The moments.
    pub fn points(&self) -> &[Measured] {
        &self.points
    }

    /// Adds a moment; whether others were dropped to make room.
    pub fn push(&mut self, point: Measured) -> bool {
        let later = self.points.last().is_none_or(|last| point.seconds >= last.seconds);
        if !(point.seconds.is_finite() && later) {
            return false;
        }
        self.points.push(point);
        let full = self.points.len() > MOST;
        if full {
            let mut i = 0;
            // The newest point has an even place, and stays.
            self.points.retain(|_| {
                i += 1;
                i % 2 == 1
            });
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_a_bounded_number_of_moments() {
        let at = |seconds: u64| Measured { seconds: seconds as f64, version: seconds, ..Measured::default() };
        let mut timeline = Timeline::new((0..50_000).map(at));
        assert!(timeline.points().len() <= MOST && timeline.points().len() >= MOST / 2);
        assert_eq!(timeline.points()[0].version, 0);
        assert_eq!(timeline.points().last().map(|last| last.version), Some(49_999));
        assert!(timeline.points().windows(2).all(|pair| pair[0].seconds < pair[1].seconds));
        timeline.push(at(3));
        timeline.push(Measured { seconds: f64::NAN, ..Measured::default() });
        assert_eq!(timeline.points().last().map(|last| last.version), Some(49_999));
    }
}
