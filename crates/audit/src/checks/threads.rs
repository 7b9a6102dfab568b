//! Threads: a round on several of them is the round on one.

use dpsgd_train::PlanConfig;

use super::Check;
use super::same_key::{few_rounds, run};
use crate::AuditError;
use crate::shortened::Shortened;

/// The numbers of threads that are compared with one.
const THREADS: [usize; 2] = [2, 3];
/// Coordinates, and rounds: enough that groups are summed by different threads in different orders.
const SIZE: (usize, u64) = (24, 8);

/// Runs a few rounds on one thread and on several, with the same key, and compares every bit of the updates.
///
/// The attacks and the other checks see the samples that a round used in the order in which one thread asks for
/// them, so they run on one thread. If every update on several threads is, bit by bit, the one on a single
/// thread, then what was found about that one holds for all: the updates are all that leaves. Gradients depend
/// on the sample, the coordinate and w, and are no round numbers, so that a sum in another order would show.
pub fn threads(config: &PlanConfig, short: &Shortened) -> Result<Check, AuditError> {
    let mut check = Check::new("threads", "a round on several threads is the round on one", 0.0);
    let (dimension, rounds) = SIZE;
    let gradient = |sample: u32, w: &[f32], sum: &mut [f32]| {
        for (j, (sum, w)) in sum.iter_mut().zip(w).enumerate() {
            *sum += ((sample as f32 + 1.0) * (j as f32 + 0.7)).sin() * 0.37 + 0.01 * w;
        }
    };
    let rounds = rounds.min(short.rounds());
    let on = |threads: usize| {
        let config = PlanConfig { threads, ..few_rounds(config, short, rounds)? };
        let done = run(&config, short, dimension, 1, gradient)?;
        Ok::<_, AuditError>(done.into_iter().map(|round| round.noised).collect::<Vec<_>>())
    };
    let alone = on(1)?;
    for threads in THREADS {
        let found = on(threads)?;
        if let Some(round) = alone.iter().zip(&found).position(|(one, several)| one != several) {
            check.fail(format!("round {round} on {threads} threads is not the one on a single thread"));
        }
    }
    check.note(format!("{rounds} rounds on 2 and 3 threads, every bit compared"));
    Ok(check)
}
