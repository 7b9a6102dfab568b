//! A plan and its ledger cannot disagree: what is charged and stated is the mechanism that is trained with.

mod toy;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dpsgd_train::directory::{DirectoryError, RunDirectory};
use dpsgd_train::ledger::LedgerError;
use dpsgd_train::{Charge, Plan, PlanConfig, Randomness, Trainer, TrainerError, TrainerState};
use toy::*;

const SAMPLES: u64 = 100;
const CONFIG: &[u8] = b"test = true\n";

fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dpsgd-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

fn plan(sigma: f64, rounds: u64) -> Arc<Plan> {
    let mechanism = mechanism(shuffle(SAMPLES, 5, 4), rounds, sigma, false);
    Arc::new(PlanConfig::new(mechanism, 0.5, 0.1).check().unwrap())
}

#[test]
fn what_is_stated_is_what_was_trained() {
    let path = place("agreement");
    let toy = Arc::new(Toy::new(SAMPLES as usize, 1));
    let directory = RunDirectory::create(&path).unwrap();
    let (ledger, _) = directory.start(CONFIG, plan(1.0, 200), false).unwrap();
    let mut trainer = Trainer::new(ledger, toy.clone(), toy.weights(1), Randomness::from_seed(1, 0)).unwrap();
    // There is one plan, and it is the ledger's.
    assert!(Arc::ptr_eq(trainer.plan(), Charge::plan(trainer.ledger())));
    assert_eq!(trainer.ledger().spent_mechanism().unwrap(), None);
    for _ in 0..6 {
        trainer.round().unwrap();
    }
    let spent = trainer.ledger().spent();
    assert!(spent >= 6 && spent.is_multiple_of(5));
    let stated = trainer.ledger().spent_mechanism().unwrap();
    assert_eq!(stated, trainer.plan().mechanism().first_rounds(spent).unwrap());
    // Whoever reads the files states the same.
    let history = RunDirectory::view(&path).unwrap().history(plan(1.0, 200).mechanism(), false).unwrap();
    assert_eq!(history.spent_mechanism().unwrap(), stated);
    let mut checkpoint = trainer.state().checkpoint();
    checkpoint.ledger = trainer.ledger().position();
    directory.write_checkpoint(&checkpoint).unwrap();
    drop(trainer);

    // No other mechanism can be resumed, and nothing is changed by the attempt.
    for other in [plan(1.1, 200), plan(1.0, 205)] {
        let error = directory.resume(other.clone(), false).unwrap_err();
        assert!(matches!(error, DirectoryError::Ledger(LedgerError::OtherRun { .. })), "{error}");
        assert!(directory.history(other.mechanism(), false).is_err());
    }
    let resumed = directory.resume(plan(1.0, 200), false).unwrap();
    let state = TrainerState::of(&resumed.checkpoint).unwrap();
    let mut trainer = Trainer::resume(resumed.ledger, toy, state, Randomness::from_seed(1, 1)).unwrap();
    assert_eq!(trainer.next_round(), spent);
    trainer.round().unwrap();
    drop((trainer, directory));
    fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_seeded_run_cannot_be_recorded_as_private() {
    let toy = Arc::new(Toy::new(SAMPLES as usize, 1));
    for (recorded, given) in
        [(true, Randomness::from_seed(1, 0)), (false, Randomness::from_system().unwrap())]
    {
        let path = place(&format!("private-{recorded}"));
        let directory = RunDirectory::create(&path).unwrap();
        let (ledger, _) = directory.start(CONFIG, plan(1.0, 200), recorded).unwrap();
        let refused = Trainer::new(ledger, toy.clone(), toy.weights(1), given).err();
        assert!(matches!(refused, Some(TrainerError::Randomness { .. })), "{refused:?}");
        drop(directory);
        fs::remove_dir_all(&path).unwrap();
    }
}
