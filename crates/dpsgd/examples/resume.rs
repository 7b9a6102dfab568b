//! A run that is stopped in the middle, read while it rests, and continued.

use std::path::PathBuf;

use dpsgd::{Observer, Prepared, RawSettings, SavedRun, prepare};

/// Stops a run after some rounds, as a time limit or Ctrl-C would.
struct StopAfter(u64);

impl Observer for StopAfter {
    fn round(&mut self, _next: u64) {
        self.0 = self.0.saturating_sub(1);
    }

    fn wants_to_stop(&mut self) -> bool {
        self.0 == 0
    }
}

fn main() -> Result<(), dpsgd::Error> {
    let directory = PathBuf::from(std::env::args().nth(1).unwrap_or("runs/resumed".into()));
    let raw = RawSettings { net: Some("logistic".into()), epochs: Some(3), ..Default::default() };
    let stopped = Prepared::new(&raw, &mut ())?.start(Some(directory.clone()))?.train(&mut StopAfter(40))?;
    assert!(!stopped.finished);
    print!("{}", stopped.statement);

    // Whatever was charged counts as spent, even if its update was lost.
    let resting = SavedRun::open(&directory)?;
    let spent = &resting.account()?.guarantees[0];
    println!("spent so far: ε ≤ {:.3} against {}", spent.answer.upper, spent.adversary.name());

    let finished = prepare::resume(&directory, None, &mut ())?.train(&mut ())?;
    println!("{}", finished.statement);
    assert!(SavedRun::open(&directory)?.verify()?.findings.is_empty());
    Ok(())
}
