//! The rows of Table "DPSGD", and a limit of the appendix about the same runs.

use super::{Case, Row, fewer, subsampled as ss};

/// N of MNIST and CIFAR-10.
const MNIST: u64 = 60_000;
const CIFAR: u64 = 50_000;

/// Runs in which one sample differs.
const SINGLE: [Case; 10] = [
    ss((MNIST, 64, 1), 1, 100, 2.0),
    ss((CIFAR, 1024, 1), 1, 20, 2.0),
    ss((MNIST, 64, 1), 1, 20, 1.0),
    ss((MNIST, 64, 1), 1, 1, 2.0),
    ss((MNIST, 64, 1), 1, 20, 2.0),
    ss((MNIST, 64, 1), 1, 100, 8.0),
    ss((MNIST, 1024, 1), 1, 100, 2.0),
    ss((CIFAR, 256, 1), 1, 100, 1.0),
    ss((CIFAR, 256, 1), 1, 20, 0.5),
    ss((CIFAR, 1024, 1), 1, 100, 8.0),
];

/// Runs in which several samples differ.
const SEVERAL: [Case; 10] = [
    ss((MNIST, 64, 1), 4, 20, 2.0),
    ss((CIFAR, 1024, 1), 4, 20, 2.0),
    ss((MNIST, 64, 1), 4, 100, 8.0),
    ss((MNIST, 64, 1), 16, 20, 2.0),
    ss((MNIST, 64, 1), 16, 20, 8.0),
    ss((MNIST, 64, 1), 4, 20, 1.0),
    ss((CIFAR, 256, 1), 4, 100, 2.0),
    ss((CIFAR, 256, 1), 16, 20, 8.0),
    ss((CIFAR, 1024, 1), 16, 20, 8.0),
    ss((CIFAR, 1024, 1), 16, 1, 2.0),
];

/// The rows of Table "DPSGD"; few runs if `quick`.
pub fn table2(quick: bool) -> Vec<Row> {
    let rows = vec![one_sample(), several_samples(), known_batches(), many_rounds()];
    if quick { fewer(rows) } else { rows }
}

/// One sample and several in turn, so that the first few show both.
fn both() -> Vec<Case> {
    SINGLE.iter().zip(&SEVERAL).take(5).flat_map(|(one, more)| [*one, *more]).collect()
}

fn one_sample() -> Row {
    Row {
        label: "Table 2 row 1",
        conditions: "individual clipping (s = 1), subsampling, g = 1, adversary A₀",
        formula: "h = C_{m/N}(G_{1/σ})^{⊗(N/m)·E}",
        remark: "A theorem, from which our exact value is computed: nothing needs correcting, only the \
            composition is carried out with certified error.",
        sources: &["Table 2 row 1"],
        cases: SINGLE.to_vec(),
    }
}

fn several_samples() -> Row {
    Row {
        label: "Table 2 row 2",
        conditions: "individual clipping (s = 1), subsampling, g ≥ 1, adversary A₀",
        formula: "h = 1 − (1−f)^{∘g} with f = C_{m/N}(G_{1/σ})^{⊗(N/m)·E}",
        remark: "Group privacy from the whole curve of one sample, compared with the direct bound for g. \
            Both are guarantees. In these runs group privacy is the smaller one: the direct bound is proved \
            as if A₀ knew how many differing samples a hit round drew.",
        sources: &["Table 2 row 2"],
        cases: SEVERAL.to_vec(),
    }
}

fn known_batches() -> Row {
    Row {
        label: "Table 2 row 3",
        conditions: "individual clipping (s = 1), subsampling, g ≥ 1, adversary A₁",
        formula: "h is in the range ≈ [G_{√((e+γ)·min{m,g}·gE)/σ}, G_0]; the approximation is for small \
            e^{−γgE}",
        remark: "True, with the best γ taken for each run, but linear in g for g ≤ m, where the exact ε \
            against A₁ follows √g: E[c²] = gE·(1 + (g−1)(m−1)/(N−1)) where m divides N.",
        sources: &["Table 2 row 3"],
        cases: both(),
    }
}

fn many_rounds() -> Row {
    Row {
        label: "Appendix \"Strong Adversarial Model\"",
        conditions: "individual clipping (s = 1), subsampling, adversary A₀, many rounds",
        formula: "h ≈ G_{c·h(σ)} for g = 1 and G_{c·h(σ)·g} for groups, c = √(E·m/N)",
        remark: "A limit for many rounds, close to the exact value for g = 1 and never a guarantee. The \
            printed expansion of h(σ) has the wrong sign: h(σ) is larger than 1/σ.",
        sources: &["Appendix \"Strong Adversarial Model\""],
        cases: both(),
    }
}
