//! Table 3: the best of every panel, beside what the paper prints and what the run guarantees.

use dpsgd::Error;
use dpsgd_data::Known;
use dpsgd_privacy::mechanism::SamplingKind;
use dpsgd_report::html;
use dpsgd_report::text::{duration, number};
use serde_json::{Value, json};

use super::title;
use crate::experiment::{Clipping, short};
use crate::panels::{Cell, GridSize, SAMPLERS, furthest};
use crate::printed;
use crate::section::{Csv, Section};
use crate::stated::{DELTA, Stated};
use crate::store::ExperimentOutcome;

const HEADER: [&str; 11] = [
    "",
    "|S_b|",
    "C",
    "E",
    "paper, %",
    "ours, %",
    "difference",
    "best epoch, %",
    "ε against A₁",
    "ε against A₀",
    "time",
];

const COLUMNS: [&str; 18] = [
    "data",
    "sampling",
    "clipping",
    "batch",
    "groups",
    "group_size",
    "clip",
    "epochs",
    "paper_percent",
    "accuracy_percent",
    "difference",
    "best_percent",
    "best_epoch",
    "epsilon_a1",
    "epsilon_a0",
    "delta",
    "seconds",
    "seed",
];

const WORDS: [&str; 2] = [
    "Test accuracy in percent with σ = 2, η = 0.025 (times 0.9 after an epoch in which the test accuracy \
     fell) and plain steps, as Algorithm 1 is printed: noise N(0, (2Cσ)²) on the sum of m clipped group \
     results, divided by m. |S_b| is the batch size that was best at the end of the panels of Figure 1; its \
     run was continued to E. ε is the certified upper end at δ = 1e-5 for exactly this run, had its \
     randomness been secret (it has a seed, so you can repeat it). For shuffling, nothing better than \
     A₁'s ε is proved against A₀.",
    "C was chosen for each data set, kind of clipping and batch size on short runs that learn from the first \
     training samples and are measured on the last 10,000 of them: by accuracy on MNIST, by loss on \
     CIFAR-10, where loss shows progress earlier. Where no loss is below that of the untrained network, C is \
     the one found on MNIST. The test set was not used for that (it does decide about η, as in the paper, \
     and about |S_b|).",
];

/// One line of the table.
struct Entry<'c> {
    data: Known,
    sampling: SamplingKind,
    clipping: Option<Clipping>,
    cell: &'c Cell,
    outcome: &'c ExperimentOutcome,
    epochs: u64,
    /// In percent.
    ours: f64,
    printed: f64,
    /// The best epoch and its accuracy in percent.
    best: (usize, f64),
    guarantee: Option<Stated>,
}

/// Table 3.
pub fn table3(cells: &[Cell], effort: &GridSize) -> Result<Section, Error> {
    let mut csv = Csv::new(&COLUMNS);
    let mut text = String::new();
    for &data in &effort.data {
        let mut rows = Vec::new();
        let kinds = Clipping::ALL.into_iter().map(Some).chain([None]);
        for (sampling, clipping) in
            SAMPLERS.into_iter().flat_map(|sampling| kinds.clone().map(move |clipping| (sampling, clipping)))
        {
            match furthest(cells, data, sampling, clipping) {
                None => rows.push(missing(data, sampling, clipping)),
                Some(cell) => {
                    let Some(entry) = Entry::of(cell)? else { continue };
                    rows.push(entry.row());
                    csv.object(entry.object());
                }
            }
        }
        text.push_str(&html::wide_table(&HEADER.map(String::from), &rows));
    }
    Ok(Section {
        title: "Table 3: accuracy".into(),
        html: WORDS.map(html::paragraph).concat() + &text,
        csv: vec![csv.file("table3.csv")?],
        json: csv.rows(),
    })
}

fn name(data: Known, sampling: SamplingKind, clipping: Option<Clipping>) -> String {
    format!("{} {} {}", title(data), short(sampling), clipping.map_or("no privacy", Clipping::short))
}

/// The row of a panel of which nothing was computed.
fn missing(data: Known, sampling: SamplingKind, clipping: Option<Clipping>) -> Vec<String> {
    let dash = || "–".to_string();
    let printed = number(printed::accuracy(data, sampling, clipping));
    let mut row =
        vec![name(data, sampling, clipping), dash(), dash(), dash(), printed, "not computed".to_string()];
    row.resize(HEADER.len(), String::new());
    row
}

impl<'c> Entry<'c> {
    fn of(cell: &'c Cell) -> Result<Option<Self>, Error> {
        let (Some((epochs, accuracy)), Some(outcome)) = (cell.reached(), &cell.outcome) else {
            return Ok(None);
        };
        let (data, sampling, clipping) = (cell.data, cell.sampling, cell.clipping);
        let best = outcome
            .curve
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.accuracy.total_cmp(&b.1.accuracy).then(b.0.cmp(&a.0)));
        Ok(Some(Self {
            data,
            sampling,
            clipping,
            cell,
            outcome,
            epochs,
            ours: 100.0 * accuracy,
            printed: printed::accuracy(data, sampling, clipping),
            best: best.map_or((0, 0.0), |(i, point)| (i + 1, 100.0 * point.accuracy)),
            guarantee: Stated::of(&outcome.experiment, epochs)?,
        }))
    }

    fn seconds(&self) -> f64 {
        self.outcome.curve.last().map_or(0.0, |last| last.seconds)
    }

    fn row(&self) -> Vec<String> {
        let [a1, a0] = Stated::cells(self.guarantee.as_ref());
        let (best_epoch, best) = self.best;
        vec![
            name(self.data, self.sampling, self.clipping),
            self.cell.batch.to_string(),
            self.cell.clip().map_or("–".into(), number),
            self.epochs.to_string(),
            number(self.printed),
            format!("{:.2}", self.ours),
            format!("{:+.2}", self.ours - self.printed),
            format!("{best:.2} ({best_epoch})"),
            a1,
            a0,
            duration(self.seconds()),
        ]
    }

    fn object(&self) -> Value {
        let settings = &self.outcome.experiment.settings;
        json!({
            "data": self.data.name(),
            "sampling": short(self.sampling),
            "clipping": self.clipping.map_or("none", Clipping::short),
            "batch": self.cell.batch,
            "groups": settings.groups,
            "group_size": settings.group_size,
            "clip": self.cell.clip(),
            "epochs": self.epochs,
            "paper_percent": self.printed,
            "accuracy_percent": self.ours,
            "difference": self.ours - self.printed,
            "best_percent": self.best.1,
            "best_epoch": self.best.0,
            "epsilon_a1": self.guarantee.map(|given| given.a1),
            "epsilon_a0": self.guarantee.map(|given| given.a0.unwrap_or(given.a1)),
            "delta": DELTA,
            "seconds": self.seconds(),
            "seed": settings.seed,
        })
    }
}
