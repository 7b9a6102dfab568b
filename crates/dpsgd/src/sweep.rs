//! Sweeps: the same training with different settings, and the truth about what the search leaks.
//!
//! Every run is a run directory of its own, is recorded in the shared ledger, and can be resumed; a sweep
//! that is started again resumes. Whoever looks at all runs sees them all: what they leak
//! together is the composition of their curves. [`select`] chooses the best one privately instead.

pub mod grid;
pub mod results;
pub mod select;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dpsgd_train::directory::{LEDGER, SUMMARY, write_atomically};

pub use self::grid::{Point, Vary};
pub use self::results::{Row, Swept};

use crate::prepare::{self, Prepared, Resume};
use crate::settings::RawSettings;
use crate::{Error, Observer};

/// What a sweep is; the same text means the same sweep.
const SWEEP: &str = "sweep.toml";

/// Watches a sweep, from several threads.
pub trait Watch: Sync {
    /// A run begins or goes on.
    fn begins(&self, _run: &str, _number: usize, _of: usize) {}

    /// A run has ended.
    fn ended(&self, _row: &Row) {}

    /// Something the owner of the data should know.
    fn warns(&self, _warning: &str) {}

    /// Whether to stop after the current rounds.
    fn wants_to_stop(&self) -> bool {
        false
    }
}

impl Watch for () {}

/// A run of the sweep for its own observer.
pub(crate) struct Watched<'a>(pub(crate) &'a dyn Watch);

impl Observer for Watched<'_> {
    fn warns(&mut self, warning: &str) {
        self.0.warns(warning);
    }

    fn wants_to_stop(&mut self) -> bool {
        self.0.wants_to_stop()
    }
}

/// A grid of runs.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The settings that do not vary.
    pub base: RawSettings,
    /// Those that do.
    pub vary: Vec<Vary>,
    /// Repeat each combination with the seeds 1, 2, …: reproducible, and NOT private.
    pub seeds: Option<u64>,
    /// Where everything is written.
    pub out: PathBuf,
    /// Runs at the same time.
    pub jobs: usize,
}

impl Sweep {
    /// Every run.
    pub fn points(&self) -> Result<Vec<Point>, Error> {
        if self.seeds == Some(0) {
            return Err(Error::Refused("seeds = 0: at least 1, or none for private runs".into()));
        }
        if self.base.seed.is_some() && self.seeds.is_some() {
            return Err(Error::Refused("seed, seeds: give one of them".into()));
        }
        grid::points(&self.base, &self.vary, self.seeds)
    }

    /// Trains every run that is not finished, and reports on all.
    pub fn run(&self, watch: &dyn Watch) -> Result<Swept, Error> {
        let points = self.points()?;
        if self.jobs == 0 {
            return Err(Error::Refused("jobs = 0: at least 1".into()));
        }
        self.claim("")?;
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let has_failed = || failed.lock().map_or(true, |failed| failed.is_some());
        let work = || {
            while !watch.wants_to_stop() && !has_failed() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(point) = points.get(number) else { return };
                let directory = self.directory(point);
                watch.begins(&point.name, number + 1, points.len());
                let trained = self.finish(point, &directory, watch).and_then(|finished| match finished {
                    true => results::row(point, &directory).map(|row| watch.ended(&row)),
                    false => Ok(()),
                });
                if let Err(error) = trained
                    && let Ok(mut failed) = failed.lock()
                {
                    failed.get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(points.len()) {
                scope.spawn(work);
            }
        });
        if let Ok(Some(error)) = failed.into_inner() {
            return Err(error);
        }
        let (mut rows, mut begun) = (Vec::new(), Vec::new());
        for point in &points {
            let directory = self.directory(point);
            if directory.join(SUMMARY).is_file() {
                rows.push(results::row(point, &directory)?);
            }
            if directory.join(LEDGER).is_file() {
                begun.push(directory);
            }
        }
        Swept::of(&self.out, rows, &begun, points.len())
    }

    fn directory(&self, point: &Point) -> PathBuf {
        self.out.join("runs").join(&point.name)
    }

    /// Trains one run to its end; false if it was stopped before.
    pub(crate) fn finish(&self, point: &Point, directory: &Path, watch: &dyn Watch) -> Result<bool, Error> {
        self.finish_with(point, directory, None, watch)
    }

    /// [`Sweep::finish`] for a try of a selection, which says so.
    pub(crate) fn finish_with(
        &self,
        point: &Point,
        directory: &Path,
        selection: Option<String>,
        watch: &dyn Watch,
    ) -> Result<bool, Error> {
        if directory.join(SUMMARY).is_file() && crate::SavedRun::open(directory)?.is_finished()? {
            return Ok(true);
        }
        let mut observer = Watched(watch);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = point.raw.threads.or(Some((cores / self.jobs).max(1)));
        let run = if directory.join(LEDGER).is_file() {
            let how = Resume { threads, ledger: point.raw.ledger.clone(), ..Resume::default() };
            prepare::resume_with(directory, how, &mut observer)?
        } else {
            let raw = RawSettings { threads, ..point.raw.clone() };
            let mut prepared = Prepared::new(&raw, &mut observer)?;
            prepared.selection = selection;
            prepared.start(Some(directory.to_path_buf()))?
        };
        Ok(run.train(&mut observer)?.finished)
    }

    /// Writes down what the sweep is, or refuses a directory that holds another one.
    pub(crate) fn claim(&self, selection: &str) -> Result<(), Error> {
        let mut text = "# The sweep in this directory; the same command continues it.\n".to_string();
        for axis in &self.vary {
            text.push_str(&format!("# vary {}={}\n", axis.name, axis.values.join(",")));
        }
        if let Some(seeds) = self.seeds {
            text.push_str(&format!("# seeds {seeds}\n"));
        }
        text.push_str(selection);
        let base = RawSettings { threads: None, ledger: None, ..self.base.clone() };
        let settings = toml::to_string(&base).map_err(|error| Error::Refused(error.to_string()))?;
        text.push_str(&settings);
        let path = self.out.join(SWEEP);
        match fs::read_to_string(&path) {
            Ok(found) if found == text => return Ok(()),
            Ok(_) => {
                return Err(Error::file(
                    &path,
                    "this directory holds another sweep; repeat its command, or choose another --out",
                ));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&path)(error)),
        }
        let occupied = fs::read_dir(&self.out).is_ok_and(|mut entries| entries.next().is_some());
        if occupied {
            return Err(Error::file(&self.out, "is not empty and holds no sweep; choose another --out"));
        }
        fs::create_dir_all(&self.out).map_err(Error::io(&self.out))?;
        write_atomically(&path, text.as_bytes()).map_err(Error::io(&path))
    }
}
