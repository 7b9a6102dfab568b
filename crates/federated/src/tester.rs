//! Measures models on the public test set in a thread of its own: folding must not wait for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use dpsgd::evaluation::{Evaluate, TestSet};
use dpsgd::{Prepared, RawSettings};

use crate::state::State;
use crate::status::Found;

/// A thread that measures models, one at a time.
pub struct Tester {
    give: Sender<(u64, Vec<f32>)>,
    take: Receiver<Result<Found, String>>,
    busy: bool,
    version: Option<u64>,
}

impl Tester {
    /// On the public test set that these settings name.
    pub fn start(raw: RawSettings) -> Self {
        let (give, given) = channel::<(u64, Vec<f32>)>();
        let (tell, take) = channel();
        std::thread::spawn(move || {
            let mut test = match Prepared::new(&raw.among_clients(), &mut ()).and_then(test_set) {
                Ok(test) => test,
                Err(error) => {
                    // Nobody listens after the end.
                    let _ = tell.send(Err(error.to_string()));
                    return;
                }
            };
            while let Ok((version, weights)) = given.recv() {
                let found = test.evaluate(&weights, 1.0);
                let _ = tell.send(Ok(Found { version, loss: found.loss, accuracy: found.accuracy }));
            }
        });
        Self { give, take, busy: false, version: None }
    }

    /// Hands over a model, if the last one is done.
    pub fn offer(&mut self, state: &State) {
        if !self.busy && self.version != Some(state.version) {
            self.busy = self.give.send((state.version, state.weights.clone())).is_ok();
            self.version = Some(state.version);
        }
    }

    /// What was found since the last call, or why nothing can be measured.
    pub fn found(&mut self) -> Option<Result<Found, String>> {
        let found = self.take.try_recv().ok()?;
        self.busy = found.is_err();
        Some(found)
    }

    /// The last model, waited for.
    pub fn last(self, state: &State) -> Option<Found> {
        if self.version != Some(state.version) {
            self.give.send((state.version, state.weights.clone())).ok()?;
        }
        drop(self.give);
        self.take.iter().filter_map(Result::ok).last()
    }
}

fn test_set(mut prepared: Prepared) -> Result<TestSet, dpsgd::Error> {
    prepared.inputs.normalise_again(&prepared.settings.data, None)?;
    Ok(TestSet {
        network: prepared.network,
        test: Arc::new(prepared.inputs.split.test),
        group_size: 1,
        threads: 1,
    })
}
