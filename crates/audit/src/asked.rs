//! Which samples the trainer used, in their order, group after group.
//!
//! The runs of an audit have one thread, so the record is the thread's. A built-in algorithm asks for every
//! sample of a group once, in order. One of the user's own may ask for some of them several times or not at
//! all, so it is wrapped: what counts is the group it was given. Where groups are cells of random sizes, one
//! that asks sample by sample is wrapped too, or nobody would know where its group ends.

use std::cell::RefCell;
use std::sync::Arc;

use dpsgd_privacy::mechanism::{BatchSize, Phase};
use dpsgd_train::{GroupContext, GroupResult, Inner, InnerAlgorithm, ModelError, PlanConfig, PlanError};

/// The samples that were asked for, and where each call ended.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// In their order.
    pub samples: Vec<u32>,
    ends: Vec<usize>,
}

impl Asked {
    const fn nothing() -> Self {
        Self { samples: Vec::new(), ends: Vec::new() }
    }

    /// The groups: all of one size, or, where they are cells, one for each call.
    pub fn groups(&self, size: Option<usize>) -> Vec<&[u32]> {
        if let Some(size) = size {
            return self.samples.chunks(size).collect();
        }
        let mut start = 0;
        let group = |&end: &usize| &self.samples[std::mem::replace(&mut start, end)..end];
        self.ends.iter().map(group).collect()
    }
}

thread_local! {
    static ASKED: RefCell<Asked> = const { RefCell::new(Asked::nothing()) };
}

/// Records samples that the model was asked about.
pub(crate) fn record(samples: &[u32]) {
    ASKED.with_borrow_mut(|asked| {
        asked.samples.extend_from_slice(samples);
        asked.ends.push(asked.samples.len());
    });
}

/// Moves the record into `taken`.
pub(crate) fn take(taken: &mut Asked) {
    taken.samples.clear();
    taken.ends.clear();
    ASKED.with_borrow_mut(|asked| {
        taken.samples.append(&mut asked.samples);
        taken.ends.append(&mut asked.ends);
    });
}

/// The same plan with the user's own algorithms wrapped, and in cells all that walk through their group.
pub(crate) fn watched(config: &PlanConfig) -> PlanConfig {
    let in_cells = config.mechanism.phases().iter().any(is_in_cells);
    let inner = config.inner.map(|inner| match inner {
        Inner::Custom(algorithm) => Inner::custom(Watched(algorithm.clone())),
        Inner::Gradient => Inner::Gradient,
        walking if in_cells => Inner::custom(Watched(Arc::new(walking.clone()))),
        builtin => builtin.clone(),
    });
    PlanConfig { inner, ..config.clone() }
}

/// Whether the groups of a phase are cells of random sizes.
pub(crate) fn is_in_cells(phase: &Phase) -> bool {
    match phase.sampling().batch() {
        BatchSize::Cells { .. } => true,
        BatchSize::Fixed { .. } | BatchSize::Random { .. } => false,
    }
}

/// An algorithm whose groups are recorded, whatever it asks the model.
#[derive(Debug)]
struct Watched(Arc<dyn InnerAlgorithm>);

impl InnerAlgorithm for Watched {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn state_vectors(&self) -> usize {
        self.0.state_vectors()
    }

    fn check(&self) -> Result<(), PlanError> {
        self.0.check()
    }

    fn is_bounded(&self, result: GroupResult) -> bool {
        self.0.is_bounded(result)
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        let before = ASKED.with_borrow(|asked| (asked.samples.len(), asked.ends.len()));
        let loss = self.0.run(group);
        ASKED.with_borrow_mut(|asked| {
            asked.samples.truncate(before.0);
            asked.ends.truncate(before.1);
        });
        record(group.samples());
        loss
    }
}
