//! A buffer of updates as one direction, coordinate by coordinate.

use crate::terms::Combine;

/// (1/η)·(mean, trimmed mean or median of the buffer); `count` updates are in the buffer, as their sum where
/// means are taken.
pub(super) fn combine(combine: Combine, buffer: Vec<Vec<f32>>, count: u64, eta: f64) -> Vec<f32> {
    match combine {
        Combine::Mean => {
            let share = (1.0 / (count as f64 * eta)) as f32;
            let mut sum = buffer.into_iter().next().unwrap_or_default();
            sum.iter_mut().for_each(|value| *value *= share);
            sum
        }
        Combine::TrimmedMean { trim } => {
            let trim = trim as usize;
            by_coordinate(&buffer, |sorted| mean(&sorted[trim..sorted.len() - trim]) / eta)
        }
        Combine::Median => by_coordinate(&buffer, |sorted| {
            // The middle value, or the mean of the two in the middle.
            let odd = sorted.len() % 2;
            let half = sorted.len() / 2;
            mean(&sorted[half + odd - 1..=half]) / eta
        }),
    }
}

fn mean(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64
}

fn by_coordinate(buffer: &[Vec<f32>], of: impl Fn(&[f32]) -> f64) -> Vec<f32> {
    let dimension = buffer.first().map_or(0, Vec::len);
    let mut column = vec![0.0; buffer.len()];
    (0..dimension)
        .map(|j| {
            for (value, update) in column.iter_mut().zip(buffer) {
                *value = update[j];
            }
            column.sort_unstable_by(f32::total_cmp);
            of(&column) as f32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_on_small_buffers() {
        let buffer = || vec![vec![1.0, 10.0], vec![2.0, -1e30], vec![6.0, 30.0], vec![-1.0, 20.0]];
        let sum = vec![vec![8.0f32, 4.0]];
        assert_eq!(combine(Combine::Mean, sum, 4, 0.5), [4.0, 2.0]);
        assert_eq!(combine(Combine::TrimmedMean { trim: 1 }, buffer(), 4, 1.0), [1.5, 15.0]);
        assert_eq!(combine(Combine::Median, buffer(), 4, 1.0), [1.5, 15.0]);
        assert_eq!(combine(Combine::Median, buffer()[..3].to_vec(), 3, 2.0), [1.0, 5.0]);
        assert_eq!(combine(Combine::Median, buffer()[..1].to_vec(), 1, 1.0), [1.0, 10.0]);
    }
}
