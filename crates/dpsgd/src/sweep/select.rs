//! The best of a random number of tries, chosen privately.
//!
//! K is drawn from a public law, each try draws its settings from the grid, and only the run with the best
//! score on the public test set is kept: see [`dpsgd_privacy::selection`] for the theorem. K, the other tries
//! and their scores are secret. They are deleted as soon as they have lost, and nothing about them is told.

use std::fs;
use std::path::{Path, PathBuf};

use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_privacy::selection::{Selection, Tries};
use dpsgd_report::rounding::up;
use dpsgd_report::text::{number, subscript, wrapped};
use dpsgd_train::directory::{SUMMARY, write_atomically};
use dpsgd_train::{Purpose, Randomness};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::grid::Point;
use super::{Sweep, Watch, Watched};
use crate::inputs::Tested;
use crate::prepare::Prepared;
use crate::run::metrics;
use crate::settings::RawSettings;
use crate::{Error, SavedRun};

/// The law of the number of tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Law {
    /// Close to its mean; with probability e^−mean there is no try at all, and nothing to release.
    Poisson,
    /// Often few and sometimes many; at least one.
    Geometric,
    /// The same more so, and cheaper.
    Logarithmic,
}

impl Law {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Law::Poisson => "poisson",
            Law::Geometric => "geometric",
            Law::Logarithmic => "logarithmic",
        }
    }

    fn tries(self, mean: f64) -> Result<Tries, Error> {
        Ok(match self {
            Law::Poisson => Tries::poisson(mean)?,
            Law::Geometric => Tries::negative_binomial(1.0, mean)?,
            Law::Logarithmic => Tries::negative_binomial(0.0, mean)?,
        })
    }
}

/// The best run, and what its release costs.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Where the chosen run is; none if no try was drawn, or if the sweep was stopped.
    pub directory: Option<PathBuf>,
    /// Whether every try is done.
    pub finished: bool,
    /// What is guaranteed, for people.
    pub statement: String,
    /// The same as JSON.
    pub json: Value,
}

/// Secret: what remains to be done.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Remaining {
    /// The point of each try; its length is K.
    tries: Vec<usize>,
    /// The next try.
    next: usize,
    /// The best so far: which try, and its score.
    best: Option<(usize, f64)>,
}

/// Where the tries are while the selection runs; removed at its end.
const TRIES: &str = "tries";
/// The file of [`Remaining`] in it.
const REMAINING: &str = "secret.json";
/// The chosen run.
const BEST: &str = "best";
/// What is said about it.
const SELECTION: &str = "selection.json";

fn refuse<T>(why: &str) -> Result<T, Error> {
    Err(Error::Refused(why.to_string()))
}

impl Sweep {
    /// Trains a random number of tries and keeps the best.
    ///
    /// # Guarantee
    /// What is in `best` is (ε, δ)-DP with the ε that is stated before the first round
    /// ([`Selection::epsilon`]): K and the settings of each try are drawn from the operating system's
    /// randomness, once, whatever interrupts the sweep; the score is measured on a public test set; of equal
    /// scores the first wins, and the tries are drawn independently, so that the data decide nothing; nothing
    /// about the other tries is returned or told to `watch`. Every try is charged to the shared ledger in
    /// full.
    pub fn select(&self, law: Law, mean: f64, watch: &dyn Watch) -> Result<Chosen, Error> {
        if self.seeds.is_some() || self.base.seed.is_some() {
            return refuse(
                "seeds: a private selection takes none; whoever knows a seed can repeat every try",
            );
        }
        if self.jobs != 1 {
            return refuse("jobs: a private selection trains one try after the other, with all threads");
        }
        let points = self.points()?;
        let (decided, mechanisms, budget) = decide(&points, watch)?;
        let tries = law.tries(mean)?;
        let epsilon = Selection::of(&mechanisms, budget.adversary, tries)?.epsilon(budget.delta)?;
        let said = format!(
            "ε ≤ {} at δ = {} against {}",
            up(epsilon, 4),
            number(budget.delta),
            subscript(budget.adversary)
        );
        self.claim(&format!("# select private, {} number of tries, mean {}\n", law.name(), number(mean)))?;
        let public = json!({
            "epsilon": epsilon,
            "delta": budget.delta,
            "adversary": budget.adversary.name(),
            "law_of_tries": law.name(),
            "mean_tries": mean,
            "settings": points.iter().map(|point| point.name.clone()).collect::<Vec<_>>(),
        });
        let place = self.out.join(TRIES);
        let best = self.out.join(BEST);
        if !self.out.join(SELECTION).is_file() {
            let mut remaining = self.remaining(tries, points.len(), &place)?;
            let note = format!(
                "the chosen one of several tries: {said} covers the choice, and its own ε alone does not"
            );
            while let Some(&point) = remaining.tries.get(remaining.next) {
                if watch.wants_to_stop()
                    || !self.try_one(&decided[point], &place, &mut remaining, &note, watch)?
                {
                    return Ok(stopped(&said, public));
                }
            }
            // Renamed already, if an interruption came before the next line.
            if let Some((winner, _)) = remaining.best.filter(|_| !best.is_dir()) {
                fs::rename(place.join(winner.to_string()), &best).map_err(Error::io(&best))?;
            }
            if best.is_dir() {
                forget_the_number(&best)?;
            }
            let path = self.out.join(SELECTION);
            write_atomically(&path, format!("{public:#}\n").as_bytes()).map_err(Error::io(&path))?;
        }
        // Also after an interruption between the two: the number of tries must not be left behind.
        if place.is_dir() {
            fs::remove_dir_all(&place).map_err(Error::io(&place))?;
        }
        finished(&best, &said, law, mean, public)
    }

    /// What remains to be done: drawn once, then remembered.
    fn remaining(&self, tries: Tries, points: usize, place: &Path) -> Result<Remaining, Error> {
        let path = place.join(REMAINING);
        match fs::read(&path) {
            Ok(bytes) => {
                let read: Result<Remaining, _> = serde_json::from_slice(&bytes);
                let whole = |known: &Remaining| known.tries.iter().all(|point| *point < points);
                match read {
                    Ok(known) if whole(&known) => Ok(known),
                    _ => Err(Error::file(&path, "is damaged; begin the selection anew in another directory")),
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut stream = Randomness::from_system()?.stream(Purpose::Splitting, 0);
                let count = tries.draw(stream.unit());
                let drawn = (0..count).map(|_| stream.below(points as u32) as usize).collect();
                let fresh = Remaining { tries: drawn, next: 0, best: None };
                fs::create_dir_all(place).map_err(Error::io(place))?;
                keep(&path, &fresh)?;
                Ok(fresh)
            }
            Err(error) => Err(Error::io(&path)(error)),
        }
    }

    /// Trains the next try, compares it with the best and deletes the loser; false if it was stopped.
    fn try_one(
        &self,
        point: &Point,
        place: &Path,
        remaining: &mut Remaining,
        note: &str,
        watch: &dyn Watch,
    ) -> Result<bool, Error> {
        let number = remaining.next;
        let directory = place.join(number.to_string());
        if !self.finish_with(point, &directory, Some(note.to_string()), &Silent(watch))? {
            return Ok(false);
        }
        let score = score(&directory)?;
        let before = remaining.best;
        if before.is_none_or(|(_, best)| score > best) {
            remaining.best = Some((number, score));
        }
        remaining.next += 1;
        keep(&place.join(REMAINING), remaining)?;
        // What lost is removed after that is written down: a crash in between leaves a directory more, which
        // goes with the others at the end.
        for loser in before.map(|(loser, _)| loser).into_iter().chain([number]) {
            if remaining.best.is_some_and(|(winner, _)| winner != loser) {
                let directory = place.join(loser.to_string());
                fs::remove_dir_all(&directory).map_err(Error::io(&directory))?;
            }
        }
        Ok(true)
    }
}

/// What a try tells: nothing. Only that it is to stop is passed on to it.
struct Silent<'a>(&'a dyn Watch);

impl Watch for Silent<'_> {
    fn wants_to_stop(&self) -> bool {
        self.0.wants_to_stop()
    }
}

/// Replaces the place where the winner was trained by the one where it is now.
///
/// # Guarantee
/// Nothing in the directory says which try it was: the winner's number is at most K, which is secret, and no
/// theorem covers it.
fn forget_the_number(best: &Path) -> Result<(), Error> {
    let path = best.join(SUMMARY);
    let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
    let mut summary: Value =
        serde_json::from_str(&text).map_err(|error| Error::file(&path, error.to_string()))?;
    summary["directory"] = json!(best.display().to_string());
    write_atomically(&path, dpsgd_report::json::line(&summary).as_bytes()).map_err(Error::io(&path))
}

/// Every kind of try with its σ chosen, its mechanism, and the budget that all share.
fn decide(
    points: &[Point],
    watch: &dyn Watch,
) -> Result<(Vec<Point>, Vec<Mechanism>, dpsgd_privacy::Budget), Error> {
    let (mut decided, mut mechanisms, mut budget) = (Vec::new(), Vec::new(), None);
    for point in points {
        let prepared = Prepared::new(&point.raw, &mut Watched(watch))?;
        if prepared.inputs.tested != Tested::Publicly {
            return refuse(
                "test: a private selection compares runs by a public test set; give one by --test",
            );
        }
        if !prepared.inputs.uncovered.is_empty() {
            return refuse(
                "schema: from-data is outside of any guarantee, so nothing can be selected privately",
            );
        }
        let settings = &prepared.settings;
        if *budget.get_or_insert(settings.budget) != settings.budget {
            return refuse("delta, adversary: must be the same for all runs of a private selection");
        }
        mechanisms.push(settings.mechanism.clone());
        let raw =
            RawSettings { threads: point.raw.threads, ledger: point.raw.ledger.clone(), ..settings.to_raw() };
        decided.push(Point { raw, ..point.clone() });
    }
    match budget {
        Some(budget) => Ok((decided, mechanisms, budget)),
        None => refuse("vary: there is no run to select from"),
    }
}

/// The score of a finished try: the accuracy on the public test set, or how small the loss is.
fn score(directory: &Path) -> Result<f64, Error> {
    let last = metrics::read(directory)?.pop();
    let score = last.map(|last| last.test_accuracy.unwrap_or(-last.test_loss));
    Ok(score.filter(|score| !score.is_nan()).unwrap_or(f64::MIN))
}

fn keep(path: &Path, remaining: &Remaining) -> Result<(), Error> {
    write_atomically(path, json!(remaining).to_string().as_bytes()).map_err(Error::io(path))
}

fn stopped(said: &str, public: Value) -> Chosen {
    let statement = format!(
        "stopped; repeat the command to go on. Nothing may be released before the selection is finished; what is \
         released then is {said}.\n"
    );
    Chosen { directory: None, finished: false, statement: wrapped(&statement, 0), json: public }
}

fn finished(best: &Path, said: &str, law: Law, mean: f64, mut public: Value) -> Result<Chosen, Error> {
    let mut text = String::new();
    let chosen = best.is_dir();
    if chosen {
        let run = SavedRun::open(best)?;
        let last = metrics::read(run.path())?.pop();
        let accuracy = last.as_ref().and_then(|last| last.test_accuracy);
        let found = accuracy.map(|share| format!(", {:.2} % correct on the public test set", 100.0 * share));
        text.push_str(&format!("the best run is {}{}\n", best.display(), found.unwrap_or_default()));
        public["directory"] = json!(best);
        public["test_accuracy"] = json!(accuracy);
    } else {
        text.push_str("no try was drawn, so there is nothing to release\n");
    }
    text.push_str("\nWHAT THE SEARCH LEAKS\n");
    text.push_str(&wrapped(
        &format!(
            "Releasing this run, chosen as the best of a secret number of tries ({}, {} on average), is {said}. \
             The ε in its report is that of the training alone. It holds if nothing else is released: the number of \
             tries, how long they took, and the other runs stay secret. The others were deleted, though a disk may \
             remember them. The shared ledger has charged every try in full: it is for the owner of the data.",
            law.name(),
            number(mean)
        ),
        2,
    ));
    Ok(Chosen {
        directory: chosen.then(|| best.to_path_buf()),
        finished: true,
        statement: text,
        json: public,
    })
}
