//! The accuracy experiments: the twelve panels of Figure 1, and Table 3, which takes the best setting of each.

use dpsgd_data::Known;

use super::experiment::{Clipping, Experiment, MIXED, Part, baseline, paper, short};
use super::laboratory::Laboratory;
use super::progress::Work;
use super::store::Outcome;
use super::tuning::{Length, tuned};
use crate::Failure;
use crate::settings::SamplingName;

/// The samplers of the paper.
pub const SAMPLERS: [SamplingName; 2] = [SamplingName::Subsample, SamplingName::Shuffle];

/// How much is computed.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The data sets.
    pub data: Vec<Known>,
    /// |S_b|. The paper prints 1028, which is not a multiple of 64: 1024 is meant.
    pub batches: Vec<u64>,
    /// E of Figure 1.
    pub figure_epochs: u64,
    /// E of Table 3.
    pub table_epochs: u64,
    /// The samples.
    pub part: Part,
    /// Whether this is the small version.
    pub quick: bool,
    /// Where all draws come from.
    pub seed: u64,
}

impl Scale {
    /// The batch sizes of a kind of clipping: mixed clipping has at least two groups.
    pub fn batches(&self, clipping: Clipping) -> Vec<u64> {
        let least = if clipping == Clipping::Mixed { 2 * MIXED } else { 1 };
        self.batches.iter().copied().filter(|batch| *batch >= least).collect()
    }

    /// The batch of the baselines: the smallest, which takes the most steps.
    fn baseline_batch(&self) -> u64 {
        self.batches.iter().copied().min().unwrap_or(64)
    }
}

/// A point of the grid and what came out.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Which data.
    pub data: Known,
    /// SS or SH.
    pub sampling: SamplingName,
    /// IC, BC, MC; none for the baseline.
    pub clipping: Option<Clipping>,
    /// |S_b|.
    pub batch: u64,
    /// What came out, as far as it was computed.
    pub outcome: Option<Outcome>,
}

impl Cell {
    fn new(data: Known, sampling: SamplingName, clipping: Option<Clipping>, batch: u64) -> Self {
        Self { data, sampling, clipping, batch, outcome: None }
    }

    /// The name of its files.
    pub fn name(&self) -> String {
        let clipping = self.clipping.map_or("sgd", Clipping::short);
        format!("{}-{}-{clipping}-{}", self.data.name(), short(self.sampling), self.batch).to_lowercase()
    }

    fn experiment(&self, clip: f64, scale: &Scale) -> Experiment {
        let made = match self.clipping {
            Some(clipping) => paper(self.data, self.sampling, clipping, self.batch, clip, scale.seed),
            None => baseline(self.data, self.sampling, self.batch, scale.seed),
        };
        Experiment { part: scale.part, ..made }
    }

    /// Brings it to so many epochs.
    fn run(
        &mut self,
        laboratory: &mut Laboratory,
        clip: f64,
        scale: &Scale,
        epochs: u64,
    ) -> Result<(), Failure> {
        let experiment = self.experiment(clip, scale);
        self.outcome = laboratory.run(&self.name(), &experiment, epochs)?;
        Ok(())
    }

    /// C.
    pub fn clip(&self) -> Option<f64> {
        self.outcome.as_ref()?.experiment.settings.clip
    }

    /// The epochs done and the accuracy after them.
    pub fn reached(&self) -> Option<(u64, f64)> {
        let outcome = self.outcome.as_ref()?;
        let epochs = outcome.epochs();
        Some((epochs, outcome.at(epochs)?))
    }
}

/// C where climbing begins on CIFAR-10, and stays where short runs say nothing: what was found on MNIST.
fn found_on_mnist(clipping: Clipping, batch: u64) -> f64 {
    match (clipping, batch) {
        (Clipping::Individual, ..=128) => 3.0,
        (Clipping::Individual, ..=256) => 10.0,
        (Clipping::Individual, ..=512) => 30.0,
        (Clipping::Individual, _) => 100.0,
        (Clipping::Batch, _) => 0.03,
        (Clipping::Mixed, ..=256) => 0.1,
        (Clipping::Mixed, _) => 1.0,
    }
}

/// C where climbing begins for the smallest batch; larger batches begin where the one before ended.
fn first_guess(clipping: Clipping) -> f64 {
    match clipping {
        Clipping::Individual => 1.0,
        Clipping::Batch => 0.03,
        Clipping::Mixed => 0.1,
    }
}

/// Runs everything of Figure 1, and of Table 3 if `table`; returns all cells, baselines last.
///
/// C is chosen for a data set, a kind of clipping and a batch size, with subsampling, and taken for shuffling as well:
/// on short runs the two samplers do not differ by more than the seed does.
pub fn run(laboratory: &mut Laboratory, scale: &Scale, table: bool) -> Result<Vec<Cell>, Failure> {
    laboratory.progress.plan("Table 3 and Figure 1", &work(scale, table));
    let mut cells = Vec::new();
    for &data in &scale.data {
        for clipping in Clipping::ALL {
            let mut clip = first_guess(clipping);
            let mut panels = SAMPLERS.map(|_| Vec::new());
            for batch in scale.batches(clipping) {
                let name = format!("{}-{}-{batch}", data.name(), clipping.short()).to_lowercase();
                let wanted = SAMPLERS.iter().any(|&sampling| {
                    laboratory.may(&Cell::new(data, sampling, Some(clipping), batch).name())
                });
                let setting = Cell::new(data, SAMPLERS[0], Some(clipping), batch).experiment(clip, scale);
                let length = Length::of(data, scale.quick);
                if length.by_loss {
                    clip = found_on_mnist(clipping, batch);
                }
                match tuned(laboratory, &name, &setting, length, clip, wanted)? {
                    Some(found) => clip = found,
                    None => continue,
                }
                for (sampling, panel) in SAMPLERS.into_iter().zip(&mut panels) {
                    let mut cell = Cell::new(data, sampling, Some(clipping), batch);
                    cell.run(laboratory, clip, scale, scale.figure_epochs)?;
                    panel.push(cell);
                }
            }
            for mut panel in panels {
                let best = chosen(&panel, scale.figure_epochs);
                if let Some(cell) = best.filter(|_| table).and_then(|best| panel.get_mut(best))
                    && let Some(clip) = cell.clip()
                {
                    cell.run(laboratory, clip, scale, scale.table_epochs)?;
                }
                cells.extend(panel);
            }
        }
    }
    for (&data, sampling) in scale.data.iter().flat_map(|data| SAMPLERS.map(|sampling| (data, sampling))) {
        let mut cell = Cell::new(data, sampling, None, scale.baseline_batch());
        let epochs = if table { scale.table_epochs } else { scale.figure_epochs };
        cell.run(laboratory, 0.0, scale, epochs)?;
        cells.push(cell);
    }
    Ok(cells)
}

/// The cell of a panel with the highest accuracy after so many epochs, the first of them if there are several.
fn chosen(panel: &[Cell], epochs: u64) -> Option<usize> {
    let mut best = None;
    for (i, cell) in panel.iter().enumerate() {
        let Some(accuracy) = cell.outcome.as_ref().and_then(|outcome| outcome.at(epochs)) else { continue };
        if best.is_none_or(|(_, highest)| accuracy > highest) {
            best = Some((i, accuracy));
        }
    }
    best.map(|(i, _)| i)
}

/// The cell of a panel that went furthest; of those, the best.
pub fn furthest(
    cells: &[Cell],
    data: Known,
    sampling: SamplingName,
    clipping: Option<Clipping>,
) -> Option<&Cell> {
    let of_panel =
        cells.iter().filter(|cell| (cell.data, cell.sampling, cell.clipping) == (data, sampling, clipping));
    let mut best: Option<(&Cell, (u64, f64))> = None;
    for cell in of_panel {
        let Some(reached) = cell.reached() else { continue };
        if best.is_none_or(|(_, highest)| reached > highest) {
            best = Some((cell, reached));
        }
    }
    best.map(|(cell, _)| cell)
}

/// Everything that may have to be computed.
fn work(scale: &Scale, table: bool) -> Vec<Work> {
    let mut work = Vec::new();
    for &data in &scale.data {
        for clipping in Clipping::ALL {
            for batch in scale.batches(clipping) {
                work.push(Work { data, samples: Length::of(data, scale.quick).work() });
                for sampling in SAMPLERS {
                    let cell = Cell::new(data, sampling, Some(clipping), batch);
                    work.push(Work::of(&cell.experiment(1.0, scale), scale.figure_epochs));
                }
            }
            if table {
                let cell = Cell::new(data, SAMPLERS[0], Some(clipping), scale.baseline_batch());
                let more = scale.table_epochs.saturating_sub(scale.figure_epochs);
                work.extend([Work::of(&cell.experiment(1.0, scale), more); 2]);
            }
        }
        let cell = Cell::new(data, SAMPLERS[0], None, scale.baseline_batch());
        work.extend([Work::of(&cell.experiment(1.0, scale), scale.table_epochs); 2]);
    }
    work
}
