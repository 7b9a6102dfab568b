//! The rows of the two tables as they are printed, and the runs for which each is evaluated.

use dpsgd_privacy::mechanism::{Length, Mechanism, Noise, PhaseConfig, RunConfig, Sampling};
use dpsgd_privacy::printed::Printed;

use crate::Failure;
use crate::settings::number;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Shuffled batches instead of subsampled ones.
    pub shuffled: bool,
    /// N.
    pub samples: u64,
    /// m.
    pub groups: u64,
    /// s.
    pub group_size: u64,
    /// g.
    pub differing: u64,
    /// E, in epochs of ⌊N/(ms)⌋ rounds.
    pub epochs: u64,
    /// σ.
    pub sigma: f64,
    /// Every group is kept with probability ½ only.
    pub filtered: bool,
}

/// A run with subsampled batches: (N, m, s), g, E, σ.
pub const fn subsampled(sizes: (u64, u64, u64), differing: u64, epochs: u64, sigma: f64) -> Case {
    let (samples, groups, group_size) = sizes;
    Case { shuffled: false, samples, groups, group_size, differing, epochs, sigma, filtered: false }
}

/// A run with shuffled batches: (N, m, s), g, E, σ.
pub const fn shuffled(sizes: (u64, u64, u64), differing: u64, epochs: u64, sigma: f64) -> Case {
    Case { shuffled: true, ..subsampled(sizes, differing, epochs, sigma) }
}

impl Case {
    /// The same run with every group kept with probability ½.
    pub const fn filtered(self) -> Self {
        Self { filtered: true, ..self }
    }

    /// "shuffle" or "subsample".
    pub fn sampling(&self) -> &'static str {
        if self.shuffled { "shuffle" } else { "subsample" }
    }

    /// The checked run.
    pub fn mechanism(&self) -> Result<Mechanism, Failure> {
        let Self { samples, groups, group_size, .. } = *self;
        let sampling = if self.shuffled {
            Sampling::Shuffle { samples, groups, group_size }
        } else {
            Sampling::Subsample { samples, groups, group_size }
        };
        let phase = PhaseConfig {
            sampling,
            length: Length::Epochs(self.epochs),
            noise: Noise::Sigma(self.sigma),
            filtered: self.filtered,
        };
        Ok(RunConfig { differing: self.differing, ..RunConfig::single(phase) }.check()?)
    }

    /// "N = 60000, m = 64, s = 1, g = 1, E = 100, σ = 2".
    pub fn name(&self) -> String {
        format!(
            "N = {}, m = {}, s = {}, g = {}, E = {}, σ = {}",
            self.samples,
            self.groups,
            self.group_size,
            self.differing,
            self.epochs,
            number(self.sigma)
        )
    }
}

/// A row of a printed table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its number in the table, or where else it is printed.
    pub label: &'static str,
    /// Clipping, sampling and g.
    pub conditions: &'static str,
    /// The formula as the table has it.
    pub formula: &'static str,
    /// What is to be seen in its runs.
    pub remark: &'static str,
    /// How the sources of its closed forms begin.
    pub sources: &'static [&'static str],
    /// The runs.
    pub cases: Vec<Case>,
}

impl Row {
    /// Whether a closed form belongs to the row.
    pub fn holds(&self, printed: &Printed) -> bool {
        self.sources.iter().any(|source| printed.source.starts_with(source))
    }
}

/// The first three runs of a row with g ≤ 4.
fn fewer(mut rows: Vec<Row>, quick: bool) -> Vec<Row> {
    if quick {
        for row in &mut rows {
            row.cases.retain(|case| case.differing <= 4);
            row.cases.truncate(3);
        }
    }
    rows
}

/// The rows of Table "DP".
pub fn table1(quick: bool) -> Vec<Row> {
    let (ss, sh) = (subsampled, shuffled);
    let (mnist, cifar) = (60_000, 50_000);
    let rows = vec![
        Row {
            label: "Table 1 row 1",
            conditions: "batch clipping (m = 1), subsampling, g ≥ 1",
            formula: "h is in the range ≈ [G_{√((1+1/√(2gE))·gE)/σ}, G_{√((1−1/√(2gE))·gE)/σ}]; the approximation \
                is for small e^{−gE} and small s/N",
            remark: "The tail e^{−qE} lacks the number of rounds. Where it is above δ the guarantee says nothing; \
                where it is below, the exact ε exceeds the promise in most runs, at δ = 1e-5 or at smaller δ. The table's \
                shorthand puts g for q, which is too pessimistic once a round holds several differing samples.",
            sources: &["Table 1 row 1"],
            cases: vec![
                ss((mnist, 1, 64), 1, 100, 2.0),
                ss((mnist, 1, 64), 1, 1, 2.0),
                ss((mnist, 1, 64), 4, 20, 2.0),
                ss((mnist, 1, 64), 1, 20, 2.0),
                ss((mnist, 1, 64), 1, 20, 1.0),
                ss((mnist, 1, 64), 1, 20, 0.5),
                ss((mnist, 1, 64), 1, 100, 8.0),
                ss((mnist, 1, 64), 16, 20, 2.0),
                ss((mnist, 1, 64), 16, 20, 8.0),
                ss((cifar, 1, 256), 4, 100, 8.0),
                ss((cifar, 1, 1024), 1, 100, 2.0),
                ss((cifar, 1, 1024), 16, 20, 8.0),
            ],
        },
        Row {
            label: "Table 1 row 2",
            conditions: "general clipping, subsampling, g = 1",
            formula: "h is in the range ≈ [G_{√((1+1/√(2E))·E)/σ}, G_{√((1−1/√(2E))·E)/σ}]; the approximation is for \
                small e^{−E}",
            remark: "c² is Binomial(T, ms/N), nearly Poisson(E), whatever m and s are. The printed range has the \
                width √(E/2) and the tail e^{−E} where the standard deviation is √E.",
            sources: &["Table 1 row 2"],
            cases: vec![
                ss((mnist, 64, 1), 1, 100, 2.0),
                ss((mnist, 64, 1), 1, 1, 2.0),
                ss((mnist, 64, 1), 1, 20, 2.0),
                ss((mnist, 1024, 1), 1, 100, 2.0),
                ss((mnist, 64, 1), 1, 100, 1.0),
                ss((mnist, 64, 1), 1, 20, 0.5),
                ss((mnist, 64, 1), 1, 100, 8.0),
                ss((cifar, 256, 1), 1, 20, 2.0),
                ss((cifar, 256, 1), 1, 100, 2.0),
                ss((cifar, 16, 64), 1, 1, 8.0),
                ss((cifar, 16, 64), 1, 100, 2.0),
                ss((cifar, 16, 64), 1, 100, 8.0),
            ],
        },
        Row {
            label: "Table 1 row 3",
            conditions: "general clipping, shuffling, g = 1",
            formula: "h = G_{√E/σ}",
            remark: "Exact where ms divides N: every epoch uses every sample once. Elsewhere an epoch leaves \
                samples out, the run leaks a little less, and \"cannot be improved\" is not true.",
            sources: &["Table 1 row 3"],
            cases: vec![
                sh((mnist, 64, 1), 1, 100, 2.0),
                sh((mnist, 96, 1), 1, 100, 2.0),
                sh((cifar, 1, 1024), 1, 1, 2.0),
                sh((mnist, 64, 1), 1, 1, 2.0),
                sh((mnist, 64, 1), 1, 20, 2.0),
                sh((mnist, 1, 1000), 1, 20, 2.0),
                sh((cifar, 16, 64), 1, 20, 2.0),
                sh((cifar, 16, 64), 1, 100, 8.0),
                sh((cifar, 1000, 1), 1, 100, 1.0),
                sh((cifar, 1, 1024), 1, 100, 8.0),
            ],
        },
        Row {
            label: "Table 1 row 4",
            conditions: "general clipping, shuffling, g ≥ 1",
            formula: "h is in the range ≈ [G_{√(gE)/σ}, G_0]; the approximation is for constant E and small g²ms/(N−g)",
            remark: "The lemma's tail g²ms/(N−g) is far above δ for data sets of this size, so that its guarantee \
                says nothing; two runs have an N large enough for it. The shorthand G_{√(gE)/σ} is too optimistic \
                with m > 1, because two differing samples in one round count 2² and not 2.",
            sources: &["Table 1 row 4"],
            cases: vec![
                sh((mnist, 64, 1), 4, 20, 2.0),
                sh((60_000_000, 64, 1), 2, 1, 2.0),
                sh((cifar, 16, 64), 4, 1, 8.0),
                sh((mnist, 64, 1), 1, 20, 2.0),
                sh((mnist, 64, 1), 16, 20, 2.0),
                sh((mnist, 1024, 1), 16, 20, 8.0),
                sh((cifar, 16, 64), 16, 20, 8.0),
                sh((cifar, 16, 64), 16, 1, 2.0),
                sh((cifar, 256, 1), 4, 100, 8.0),
                sh((60_000_000, 1, 64), 2, 2, 4.0),
                sh((mnist, 1, 64), 16, 20, 8.0),
            ],
        },
        Row {
            label: "Table 1 row 5",
            conditions: "batch clipping (m = 1), shuffling, g ≥ 1",
            formula: "h ∈ [G_{√(gE)/σ}, G_0]",
            remark: "True for every g, also g > s: at most g rounds of an epoch are hit. It is loose where \
                differing samples are likely to meet in one round.",
            sources: &["Table 1 row 5"],
            cases: vec![
                sh((mnist, 1, 64), 4, 20, 2.0),
                sh((mnist, 1, 64), 1, 100, 2.0),
                sh((cifar, 1, 1024), 4, 20, 8.0),
                sh((mnist, 1, 64), 16, 20, 2.0),
                sh((mnist, 1, 8), 16, 20, 8.0),
                sh((cifar, 1, 256), 16, 1, 2.0),
                sh((cifar, 1, 1024), 16, 1, 1.0),
                sh((cifar, 1, 1024), 16, 20, 8.0),
                sh((cifar, 1, 1024), 64, 20, 8.0),
            ],
        },
        Row {
            label: "Table 1 row 6",
            conditions: "batch clipping (m = 1), shuffling, g ≤ s",
            formula: "h ≈ G_{√(gE)/σ}; the approximation is for constant E and small g²/(N/s−g−g²)",
            remark: "The lemma's law of c counts occupancy vectors as equally likely where positions are: too much \
                weight on small c, and so a promise that is kept in no run with g > 1.",
            sources: &["Table 1 row 6", "Lemma batchshuf"],
            cases: vec![
                sh((mnist, 1, 64), 4, 20, 2.0),
                sh((mnist, 1, 60), 1, 20, 2.0),
                sh((cifar, 1, 1024), 4, 1, 1.0),
                sh((mnist, 1, 64), 4, 1, 2.0),
                sh((mnist, 1, 64), 4, 100, 8.0),
                sh((mnist, 1, 64), 16, 20, 2.0),
                sh((cifar, 1, 256), 4, 20, 8.0),
                sh((cifar, 1, 256), 16, 20, 8.0),
                sh((cifar, 1, 1024), 16, 1, 1.0),
                sh((cifar, 1, 1024), 16, 20, 8.0),
            ],
        },
        Row {
            label: "Appendix \"Probabilistic Filtered Batches\"",
            conditions: "each group kept with probability ½, any clipping and sampling",
            formula: "as if σ were doubled: \"a factor 2\"",
            remark: "Not part of Table 1, but a statement about the same runs. A hit group is dropped every other \
                time, so c² is halved on average and µ falls by √2, not by 2, and at few epochs by less.",
            sources: &["Appendix \"Probabilistic Filtered Batches\""],
            cases: vec![
                sh((mnist, 1, 60), 1, 1, 2.0).filtered(),
                sh((mnist, 1, 60), 1, 100, 2.0).filtered(),
                ss((mnist, 64, 1), 1, 20, 2.0).filtered(),
                sh((mnist, 1, 60), 1, 20, 2.0).filtered(),
                sh((mnist, 1, 60), 1, 100, 8.0).filtered(),
                sh((mnist, 1, 64), 16, 20, 8.0).filtered(),
                ss((cifar, 1024, 1), 1, 100, 8.0).filtered(),
                ss((cifar, 1024, 1), 16, 20, 8.0).filtered(),
            ],
        },
    ];
    fewer(rows, quick)
}

/// The rows of Table "DPSGD".
pub fn table2(quick: bool) -> Vec<Row> {
    let ss = subsampled;
    let (mnist, cifar) = (60_000, 50_000);
    let single = vec![
        ss((mnist, 64, 1), 1, 100, 2.0),
        ss((cifar, 1024, 1), 1, 20, 2.0),
        ss((mnist, 64, 1), 1, 20, 1.0),
        ss((mnist, 64, 1), 1, 1, 2.0),
        ss((mnist, 64, 1), 1, 20, 2.0),
        ss((mnist, 64, 1), 1, 100, 8.0),
        ss((mnist, 1024, 1), 1, 100, 2.0),
        ss((cifar, 256, 1), 1, 100, 1.0),
        ss((cifar, 256, 1), 1, 20, 0.5),
        ss((cifar, 1024, 1), 1, 100, 8.0),
    ];
    let groups = vec![
        ss((mnist, 64, 1), 4, 20, 2.0),
        ss((cifar, 1024, 1), 4, 20, 2.0),
        ss((mnist, 64, 1), 4, 100, 8.0),
        ss((mnist, 64, 1), 16, 20, 2.0),
        ss((mnist, 64, 1), 16, 20, 8.0),
        ss((mnist, 64, 1), 4, 20, 1.0),
        ss((cifar, 256, 1), 4, 100, 2.0),
        ss((cifar, 256, 1), 16, 20, 8.0),
        ss((cifar, 1024, 1), 16, 20, 8.0),
        ss((cifar, 1024, 1), 16, 1, 2.0),
    ];
    // One sample and several in turn, so that the first few show both.
    let both = || single.iter().zip(&groups).take(5).flat_map(|(one, more)| [*one, *more]).collect();
    let rows = vec![
        Row {
            label: "Table 2 row 1",
            conditions: "individual clipping (s = 1), subsampling, g = 1, adversary A₀",
            formula: "h = C_{m/N}(G_{1/σ})^{⊗(N/m)·E}",
            remark: "A theorem, and what our exact value is computed from: there is nothing to correct, only the \
                composition to carry out with certified error.",
            sources: &["Table 2 row 1"],
            cases: single.clone(),
        },
        Row {
            label: "Table 2 row 2",
            conditions: "individual clipping (s = 1), subsampling, g ≥ 1, adversary A₀",
            formula: "h = 1 − (1−f)^{∘g} with f = C_{m/N}(G_{1/σ})^{⊗(N/m)·E}",
            remark: "Group privacy from the whole curve of one sample, set beside the direct bound for g. Both are \
                guarantees. In these runs group privacy is the smaller one: the direct bound is proved as if A₀ knew \
                how many differing samples a hit round drew.",
            sources: &["Table 2 row 2"],
            cases: groups.clone(),
        },
        Row {
            label: "Table 2 row 3",
            conditions: "individual clipping (s = 1), subsampling, g ≥ 1, adversary A₁",
            formula: "h is in the range ≈ [G_{√((e+γ)·min{m,g}·gE)/σ}, G_0]; the approximation is for small e^{−γgE}",
            remark: "True, with the best γ taken for each run, but linear in g for g ≤ m, where the exact ε against \
                A₁ follows √g: E[c²] = gE·(1 + (g−1)(m−1)/(N−1)) where m divides N.",
            sources: &["Table 2 row 3"],
            cases: both(),
        },
        Row {
            label: "Appendix \"Strong Adversarial Model\"",
            conditions: "individual clipping (s = 1), subsampling, adversary A₀, many rounds",
            formula: "h ≈ G_{c·h(σ)} for g = 1 and G_{c·h(σ)·g} for groups, c = √(E·m/N)",
            remark: "A limit for many rounds, close to the exact value for g = 1 and never a guarantee. The \
                printed expansion of h(σ) has the wrong sign: h(σ) is larger than 1/σ.",
            sources: &["Appendix \"Strong Adversarial Model\""],
            cases: both(),
        },
    ];
    fewer(rows, quick)
}
