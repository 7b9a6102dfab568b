//! The accuracy experiments: the twelve panels of Figure 1, and Table 3, which takes the best setting of
//! each.

use dpsgd::Error;
use dpsgd_data::Known;
use dpsgd_privacy::mechanism::SamplingKind;

use crate::experiment::{Clipping, Experiment, MIXED, Portion, baseline, paper, short};
use crate::laboratory::Laboratory;
use crate::progress::Work;
use crate::store::ExperimentOutcome;
use crate::tuning::{TuningLength, tuned};

/// The samplers of the paper.
pub const SAMPLERS: [SamplingKind; 2] = [SamplingKind::Subsample, SamplingKind::Shuffle];

/// How much is computed.
#[derive(Clone, Debug)]
pub struct GridSize {
    /// The data sets.
    pub data: Vec<Known>,
    /// |S_b|. The paper prints 1028, which is not a multiple of 64: 1024 is meant.
    pub batches: Vec<u64>,
    /// E of Figure 1.
    pub figure_epochs: u64,
    /// E of Table 3.
    pub table_epochs: u64,
    /// The samples.
    pub part: Portion,
    /// Whether this is the small version.
    pub quick: bool,
    /// Where all draws come from.
    pub seed: u64,
}

impl GridSize {
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

/// A point of the grid and its outcome.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Which data.
    pub data: Known,
    /// SS or SH.
    pub sampling: SamplingKind,
    /// IC, BC, MC; none for the baseline.
    pub clipping: Option<Clipping>,
    /// |S_b|.
    pub batch: u64,
    /// Its outcome, as far as it was computed.
    pub outcome: Option<ExperimentOutcome>,
}

impl Cell {
    fn new(data: Known, sampling: SamplingKind, clipping: Option<Clipping>, batch: u64) -> Self {
        Self { data, sampling, clipping, batch, outcome: None }
    }

    /// The name of its files.
    pub fn name(&self) -> String {
        let clipping = self.clipping.map_or("sgd", Clipping::short);
        format!("{}-{}-{clipping}-{}", self.data.name(), short(self.sampling), self.batch).to_lowercase()
    }

    fn experiment(&self, clip: f64, effort: &GridSize) -> Experiment {
        let made = match self.clipping {
            Some(clipping) => paper(self.data, self.sampling, clipping, self.batch, clip, effort.seed),
            None => baseline(self.data, self.sampling, self.batch, effort.seed),
        };
        Experiment { part: effort.part, ..made }
    }

    /// Brings it to this many epochs.
    fn run(
        &mut self,
        laboratory: &mut Laboratory<'_>,
        clip: f64,
        effort: &GridSize,
        epochs: u64,
    ) -> Result<(), Error> {
        let experiment = self.experiment(clip, effort);
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

/// C where the search begins on CIFAR-10, and ends if short runs say nothing: what was found on MNIST.
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

/// C where the search begins for the smallest batch; for a larger batch it begins where the one before ended.
fn first_guess(clipping: Clipping) -> f64 {
    match clipping {
        Clipping::Individual => 1.0,
        Clipping::Batch => 0.03,
        Clipping::Mixed => 0.1,
    }
}

/// Runs everything of Figure 1, and of Table 3 if `table`; returns all cells, baselines last.
pub fn run(laboratory: &mut Laboratory<'_>, effort: &GridSize, table: bool) -> Result<Vec<Cell>, Error> {
    laboratory.progress.plan("Table 3 and Figure 1", &work(effort, table));
    let mut cells = Vec::new();
    for &data in &effort.data {
        for clipping in Clipping::ALL {
            for mut panel in panels(laboratory, effort, data, clipping)? {
                let best = chosen(&panel, effort.figure_epochs);
                if let Some(cell) = best.filter(|_| table).and_then(|best| panel.get_mut(best))
                    && let Some(clip) = cell.clip()
                {
                    cell.run(laboratory, clip, effort, effort.table_epochs)?;
                }
                cells.extend(panel);
            }
        }
    }
    for (&data, sampling) in effort.data.iter().flat_map(|data| SAMPLERS.map(|sampling| (data, sampling))) {
        let mut cell = Cell::new(data, sampling, None, effort.baseline_batch());
        let epochs = if table { effort.table_epochs } else { effort.figure_epochs };
        cell.run(laboratory, 0.0, effort, epochs)?;
        cells.push(cell);
    }
    Ok(cells)
}

/// The panels of a kind of clipping, one for each sampler.
///
/// C is chosen for a data set, a kind of clipping and a batch size, with subsampling, and used for shuffling
/// as well: on short runs the two samplers differ by no more than two seeds do.
fn panels(
    laboratory: &mut Laboratory<'_>,
    effort: &GridSize,
    data: Known,
    clipping: Clipping,
) -> Result<[Vec<Cell>; 2], Error> {
    let mut clip = first_guess(clipping);
    let mut panels = SAMPLERS.map(|_| Vec::new());
    for batch in effort.batches(clipping) {
        let name = format!("{}-{}-{batch}", data.name(), clipping.short()).to_lowercase();
        let wanted = SAMPLERS
            .iter()
            .any(|&sampling| laboratory.may(&Cell::new(data, sampling, Some(clipping), batch).name()));
        let setting = Cell::new(data, SAMPLERS[0], Some(clipping), batch).experiment(clip, effort);
        let length = TuningLength::of(data, effort.quick);
        if length.by_loss {
            clip = found_on_mnist(clipping, batch);
        }
        match tuned(laboratory, &name, &setting, length, clip, wanted)? {
            Some(found) => clip = found,
            None => continue,
        }
        for (sampling, panel) in SAMPLERS.into_iter().zip(&mut panels) {
            let mut cell = Cell::new(data, sampling, Some(clipping), batch);
            cell.run(laboratory, clip, effort, effort.figure_epochs)?;
            panel.push(cell);
        }
    }
    Ok(panels)
}

/// The cell of a panel with the highest accuracy after this many epochs, the first if there are several.
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

/// The cell of a panel with the most epochs; of those, the best.
pub fn furthest(
    cells: &[Cell],
    data: Known,
    sampling: SamplingKind,
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
fn work(effort: &GridSize, table: bool) -> Vec<Work> {
    let mut work = Vec::new();
    for &data in &effort.data {
        for clipping in Clipping::ALL {
            for batch in effort.batches(clipping) {
                work.push(Work { data, samples: TuningLength::of(data, effort.quick).work() });
                for sampling in SAMPLERS {
                    let cell = Cell::new(data, sampling, Some(clipping), batch);
                    work.push(Work::of(&cell.experiment(1.0, effort), effort.figure_epochs));
                }
            }
            if table {
                let cell = Cell::new(data, SAMPLERS[0], Some(clipping), effort.baseline_batch());
                let more = effort.table_epochs.saturating_sub(effort.figure_epochs);
                work.extend([Work::of(&cell.experiment(1.0, effort), more); 2]);
            }
        }
        let cell = Cell::new(data, SAMPLERS[0], None, effort.baseline_batch());
        work.extend([Work::of(&cell.experiment(1.0, effort), effort.table_epochs); 2]);
    }
    work
}
