//! The audit of a model that computes whole batches of rows, as those of another runtime do: it passes where rows are right,
//! and finds a model that mixes groups.
//!
//! Seeds are fixed; the right one would fail by chance with probability at most 1e-6 for a seed not looked at before.

use std::num::NonZeroUsize;
use std::sync::Arc;

use dpsgd_audit::{Audit, Effort, Options, Subject, audit_model};
use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::{Form, Model, ModelError, PlanConfig, RowSink, Worker};

struct Rows {
    dimension: usize,
    gradients: Vec<f32>,
    /// Whether every row has a tenth of the row before it.
    mixes: bool,
}

struct RowsWorker(Arc<Rows>, Vec<f32>);

impl Model for Rows {
    type Worker = RowsWorker;

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn samples(&self) -> usize {
        self.gradients.len() / self.dimension
    }

    fn form(&self) -> Form {
        Form::Rows { chunk: NonZeroUsize::new(16).unwrap() }
    }

    fn worker(self: &Arc<Self>, _: usize) -> Result<RowsWorker, ModelError> {
        Ok(RowsWorker(self.clone(), vec![0.0; self.dimension]))
    }
}

impl Worker for RowsWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.1
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        let Rows { dimension, gradients, .. } = &*self.0;
        gradient.fill(0.0);
        for &sample in group {
            let own = &gradients[sample as usize * dimension..][..*dimension];
            gradient.iter_mut().zip(own).for_each(|(sum, g)| *sum += g / group.len() as f32);
        }
        Ok(0.0)
    }

    fn rows(&mut self, samples: &[u32], size: usize, sink: &mut RowSink<'_>) -> Result<(), ModelError> {
        let dimension = self.0.dimension;
        let count = samples.len() / size;
        let mut rows = vec![0.0; count * dimension];
        for (group, row) in samples.chunks_exact(size).zip(rows.chunks_exact_mut(dimension)) {
            self.gradient(group, row)?;
        }
        if self.0.mixes {
            (dimension..rows.len()).rev().for_each(|i| rows[i] += 0.1 * rows[i - dimension]);
        }
        sink(&[&rows], &vec![0.0; count]);
        Ok(())
    }
}

struct Maker {
    mixes: bool,
}

impl Subject for Maker {
    type Model = Rows;

    fn model(&self, dimension: usize, gradients: &[f32]) -> Result<Arc<Rows>, ModelError> {
        Ok(Arc::new(Rows { dimension, gradients: gradients.to_vec(), mixes: self.mixes }))
    }

    fn name(&self) -> String {
        "a test".into()
    }
}

fn audited(sampling: Sampling, mixes: bool, seed: u64) -> Audit {
    let noise = NoiseScale::Sigma(1.0);
    let phase = PhaseConfig { sampling, length: Length::Rounds(10_000), noise, filtered: false };
    let config = PlanConfig::new(RunConfig::single(phase).check().unwrap(), 0.3, 0.1).with_divisor(20.0);
    let options = Options { effort: Effort::Trials(400), seed: Some(seed), threads: 2, delta: 1e-5 };
    audit_model(&config.check().unwrap(), &options, &Maker { mixes }).unwrap().swap_remove(0)
}

fn samplers() -> [Sampling; 4] {
    [
        Sampling::Subsample { samples: 163, groups: 8, group_size: 1 },
        Sampling::Shuffle { samples: 160, groups: 4, group_size: 5 },
        Sampling::Poisson { rate: 0.1 },
        Sampling::Allocate { rounds: 8 },
    ]
}

#[test]
fn right_rows_pass_with_every_sampler() {
    for (number, sampling) in samplers().into_iter().enumerate() {
        let audit = audited(sampling, false, 1 + number as u64);
        assert!(!audit.contradicts(), "{sampling:?}: {audit:?}");
        assert!(audit.data.contains("a test computes the gradients"), "{}", audit.data);
    }
}

#[test]
fn rows_that_hold_something_of_another_group_are_found() {
    for (number, sampling) in samplers().into_iter().enumerate() {
        let audit = audited(sampling, true, 9 + number as u64);
        assert!(audit.attacks.iter().any(|attack| attack.contradicts()), "{sampling:?}: {audit:?}");
    }
}
