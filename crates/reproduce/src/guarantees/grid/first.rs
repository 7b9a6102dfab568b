//! The rows of Table "DP", and a statement of the appendix about the same runs.

use super::{Row, fewer, shuffled as sh, subsampled as ss};

/// N of MNIST and CIFAR-10.
const MNIST: u64 = 60_000;
const CIFAR: u64 = 50_000;

/// The rows of Table "DP"; few runs if `quick`.
pub fn table1(quick: bool) -> Vec<Row> {
    let rows = vec![
        batch_subsampling(),
        general_subsampling(),
        shuffling_one_sample(),
        shuffling(),
        batch_shuffling(),
        batch_shuffling_small_groups(),
        filtering(),
    ];
    if quick { fewer(rows) } else { rows }
}

fn batch_subsampling() -> Row {
    Row {
        label: "Table 1 row 1",
        conditions: "batch clipping (m = 1), subsampling, g ≥ 1",
        formula: "h is in the range ≈ [G_{√((1+1/√(2gE))·gE)/σ}, G_{√((1−1/√(2gE))·gE)/σ}]; the \
            approximation is for small e^{−gE} and small s/N",
        remark: "The tail e^{−qE} lacks the number of rounds. Where it is above δ the guarantee says \
            nothing; where it is below, the exact ε exceeds the promise in most runs, at δ = 1e-5 or at \
            smaller δ. The table's shorthand replaces q by g, which is too pessimistic once a round contains \
            several differing samples.",
        sources: &["Table 1 row 1"],
        cases: vec![
            ss((MNIST, 1, 64), 1, 100, 2.0),
            ss((MNIST, 1, 64), 1, 1, 2.0),
            ss((MNIST, 1, 64), 4, 20, 2.0),
            ss((MNIST, 1, 64), 1, 20, 2.0),
            ss((MNIST, 1, 64), 1, 20, 1.0),
            ss((MNIST, 1, 64), 1, 20, 0.5),
            ss((MNIST, 1, 64), 1, 100, 8.0),
            ss((MNIST, 1, 64), 16, 20, 2.0),
            ss((MNIST, 1, 64), 16, 20, 8.0),
            ss((CIFAR, 1, 256), 4, 100, 8.0),
            ss((CIFAR, 1, 1024), 1, 100, 2.0),
            ss((CIFAR, 1, 1024), 16, 20, 8.0),
        ],
    }
}

fn general_subsampling() -> Row {
    Row {
        label: "Table 1 row 2",
        conditions: "general clipping, subsampling, g = 1",
        formula: "h is in the range ≈ [G_{√((1+1/√(2E))·E)/σ}, G_{√((1−1/√(2E))·E)/σ}]; the approximation is \
            for small e^{−E}",
        remark: "c² is Binomial(T, ms/N), nearly Poisson(E), whatever m and s are. The printed range has the \
            width √(E/2) and the tail e^{−E} where the standard deviation is √E.",
        sources: &["Table 1 row 2"],
        cases: vec![
            ss((MNIST, 64, 1), 1, 100, 2.0),
            ss((MNIST, 64, 1), 1, 1, 2.0),
            ss((MNIST, 64, 1), 1, 20, 2.0),
            ss((MNIST, 1024, 1), 1, 100, 2.0),
            ss((MNIST, 64, 1), 1, 100, 1.0),
            ss((MNIST, 64, 1), 1, 20, 0.5),
            ss((MNIST, 64, 1), 1, 100, 8.0),
            ss((CIFAR, 256, 1), 1, 20, 2.0),
            ss((CIFAR, 256, 1), 1, 100, 2.0),
            ss((CIFAR, 16, 64), 1, 1, 8.0),
            ss((CIFAR, 16, 64), 1, 100, 2.0),
            ss((CIFAR, 16, 64), 1, 100, 8.0),
        ],
    }
}

fn shuffling_one_sample() -> Row {
    Row {
        label: "Table 1 row 3",
        conditions: "general clipping, shuffling, g = 1",
        formula: "h = G_{√E/σ}",
        remark: "Exact where ms divides N: every epoch uses every sample once. Otherwise an epoch leaves \
            samples out, the run leaks a little less, and \"cannot be improved\" is not true.",
        sources: &["Table 1 row 3"],
        cases: vec![
            sh((MNIST, 64, 1), 1, 100, 2.0),
            sh((MNIST, 96, 1), 1, 100, 2.0),
            sh((CIFAR, 1, 1024), 1, 1, 2.0),
            sh((MNIST, 64, 1), 1, 1, 2.0),
            sh((MNIST, 64, 1), 1, 20, 2.0),
            sh((MNIST, 1, 1000), 1, 20, 2.0),
            sh((CIFAR, 16, 64), 1, 20, 2.0),
            sh((CIFAR, 16, 64), 1, 100, 8.0),
            sh((CIFAR, 1000, 1), 1, 100, 1.0),
            sh((CIFAR, 1, 1024), 1, 100, 8.0),
        ],
    }
}

fn shuffling() -> Row {
    Row {
        label: "Table 1 row 4",
        conditions: "general clipping, shuffling, g ≥ 1",
        formula: "h is in the range ≈ [G_{√(gE)/σ}, G_0]; the approximation is for constant E and small \
            g²ms/(N−g)",
        remark: "The lemma's tail g²ms/(N−g) is far above δ for data sets of this size, so its guarantee \
            says nothing; in two of the runs N is large enough for it. The shorthand G_{√(gE)/σ} is too \
            optimistic with m > 1, because two differing samples in one round count 2² and not 2.",
        sources: &["Table 1 row 4"],
        cases: vec![
            sh((MNIST, 64, 1), 4, 20, 2.0),
            sh((60_000_000, 64, 1), 2, 1, 2.0),
            sh((CIFAR, 16, 64), 4, 1, 8.0),
            sh((MNIST, 64, 1), 1, 20, 2.0),
            sh((MNIST, 64, 1), 16, 20, 2.0),
            sh((MNIST, 1024, 1), 16, 20, 8.0),
            sh((CIFAR, 16, 64), 16, 20, 8.0),
            sh((CIFAR, 16, 64), 16, 1, 2.0),
            sh((CIFAR, 256, 1), 4, 100, 8.0),
            sh((60_000_000, 1, 64), 2, 2, 4.0),
            sh((MNIST, 1, 64), 16, 20, 8.0),
        ],
    }
}

fn batch_shuffling() -> Row {
    Row {
        label: "Table 1 row 5",
        conditions: "batch clipping (m = 1), shuffling, g ≥ 1",
        formula: "h ∈ [G_{√(gE)/σ}, G_0]",
        remark: "True for every g, even g > s: at most g rounds of an epoch are hit. It is loose where \
            differing samples are likely to fall into the same round.",
        sources: &["Table 1 row 5"],
        cases: vec![
            sh((MNIST, 1, 64), 4, 20, 2.0),
            sh((MNIST, 1, 64), 1, 100, 2.0),
            sh((CIFAR, 1, 1024), 4, 20, 8.0),
            sh((MNIST, 1, 64), 16, 20, 2.0),
            sh((MNIST, 1, 8), 16, 20, 8.0),
            sh((CIFAR, 1, 256), 16, 1, 2.0),
            sh((CIFAR, 1, 1024), 16, 1, 1.0),
            sh((CIFAR, 1, 1024), 16, 20, 8.0),
            sh((CIFAR, 1, 1024), 64, 20, 8.0),
        ],
    }
}

fn batch_shuffling_small_groups() -> Row {
    Row {
        label: "Table 1 row 6",
        conditions: "batch clipping (m = 1), shuffling, g ≤ s",
        formula: "h ≈ G_{√(gE)/σ}; the approximation is for constant E and small g²/(N/s−g−g²)",
        remark: "The lemma's law of c treats occupancy vectors as equally likely, where positions are. That \
            puts too much weight on small c: the promise is broken in every run with g > 1.",
        sources: &["Table 1 row 6", "Lemma batchshuf"],
        cases: vec![
            sh((MNIST, 1, 64), 4, 20, 2.0),
            sh((MNIST, 1, 60), 1, 20, 2.0),
            sh((CIFAR, 1, 1024), 4, 1, 1.0),
            sh((MNIST, 1, 64), 4, 1, 2.0),
            sh((MNIST, 1, 64), 4, 100, 8.0),
            sh((MNIST, 1, 64), 16, 20, 2.0),
            sh((CIFAR, 1, 256), 4, 20, 8.0),
            sh((CIFAR, 1, 256), 16, 20, 8.0),
            sh((CIFAR, 1, 1024), 16, 1, 1.0),
            sh((CIFAR, 1, 1024), 16, 20, 8.0),
        ],
    }
}

fn filtering() -> Row {
    Row {
        label: "Appendix \"Probabilistic Filtered Batches\"",
        conditions: "each group kept with probability ½, any clipping and sampling",
        formula: "as if σ were doubled: \"a factor 2\"",
        remark: "Not part of Table 1, but a statement about the same runs. A hit group is dropped half of \
            the time, so c² is halved on average and µ falls by a factor of √2 rather than 2, and by less \
            after few epochs.",
        sources: &["Appendix \"Probabilistic Filtered Batches\""],
        cases: vec![
            sh((MNIST, 1, 60), 1, 1, 2.0).filtered(),
            sh((MNIST, 1, 60), 1, 100, 2.0).filtered(),
            ss((MNIST, 64, 1), 1, 20, 2.0).filtered(),
            sh((MNIST, 1, 60), 1, 20, 2.0).filtered(),
            sh((MNIST, 1, 60), 1, 100, 8.0).filtered(),
            sh((MNIST, 1, 64), 16, 20, 8.0).filtered(),
            ss((CIFAR, 1024, 1), 1, 100, 8.0).filtered(),
            ss((CIFAR, 1024, 1), 16, 20, 8.0).filtered(),
        ],
    }
}
