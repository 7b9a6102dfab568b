//! The rows of the two tables and their lemmas, as claims about ε.

use super::claim::{self, Lower, Occupancy, Upper, gaussian};
use super::{GRID, Side, group, power};
use crate::adversary::{self, Adversary};
use crate::curve::Curve;
use crate::error::PrivacyError;
use crate::exposure::{Law, RoundLaw};
use crate::interval::Interval;
use crate::mechanism::{FixedSizes, Mechanism, NoiseScale, Phase};
use crate::mixture::Mixture;

/// A single-phase run, with the values every row uses.
pub(super) struct Run<'a> {
    pub(super) mechanism: &'a Mechanism,
    pub(super) phase: &'a Phase,
    pub(super) sizes: FixedSizes,
    pub(super) delta: f64,
    pub(super) law: Option<Law>,
}

/// What a row says, before it is judged.
pub(super) struct Claim {
    pub(super) source: &'static str,
    pub(super) formula: String,
    pub(super) adversary: Adversary,
    pub(super) side: Side,
    pub(super) epsilon: f64,
    /// (δ, ε): the requested δ first, then the grid. Empty where there is nothing to judge.
    pub(super) tried: Vec<(f64, f64)>,
    pub(super) note: Option<String>,
}

impl Run<'_> {
    /// g.
    fn g(&self) -> f64 {
        self.mechanism.differing() as f64
    }

    /// E of the subsampling forms. They mean T = (N/ms)·E rounds, so E = T·ms/N, whether or not ms
    /// divides N: with leftover samples an "epoch" of B = ⌊N/ms⌋ rounds counts as B·ms/N < 1.
    fn epochs_of_gradients(&self) -> f64 {
        self.phase.rounds() as f64 * self.sizes.batch() as f64 / self.sizes.samples as f64
    }

    /// E of the shuffling forms: the number of permutations, counting an incomplete last epoch as a
    /// whole one. The forms ignore leftover samples, so a permutation is one epoch even when it
    /// leaves some out; a sample left out is not hit, so guarantees stay true, while limits may not.
    fn permutations(&self) -> u64 {
        self.phase.rounds().div_ceil(self.phase.sampling().rounds_per_epoch())
    }

    fn claim(&self, source: &'static str, formula: &str, side: Side, epsilon: impl Fn(f64) -> f64) -> Claim {
        let at = |delta: f64| (delta, epsilon(delta));
        let here = at(self.delta);
        let tried = if side == Side::Approximation {
            Vec::new()
        } else {
            let others = GRID.into_iter().filter(|&delta| delta != self.delta);
            // A product may be too long at one δ and not at another.
            std::iter::once(here).chain(others.map(at)).filter(|claimed| !claimed.1.is_nan()).collect()
        };
        Claim {
            source,
            formula: formula.to_string(),
            adversary: Adversary::A1,
            side,
            epsilon: here.1,
            tried,
            note: None,
        }
    }

    /// The claimed right tail, e^{−x}, beside the true one.
    fn tails(&self, cut: f64, x: f64) -> Option<String> {
        let law = self.law.as_ref()?;
        let tail: f64 = law.iter().filter(|&(square, _)| square as f64 > cut).map(|(_, q)| q).sum();
        Some(format!("Pr[c > c^L] is said to be at most e^−{x:.1} and is {tail:.3}"))
    }
}

/// The law of c, where it can be listed.
pub(super) fn law(mechanism: &Mechanism) -> Result<Option<Law>, PrivacyError> {
    match adversary::law(mechanism) {
        Err(PrivacyError::TooCostly { .. }) => Ok(None),
        other => other,
    }
}

/// Table 1 rows 1 and 2 and Table 2 row 3.
pub(super) fn subsampled(run: &Run) -> Vec<Claim> {
    let mut claims = Vec::new();
    let e = run.epochs_of_gradients();
    if run.sizes.groups == 1 {
        // qE with q = (N/s)(1 − C(N−g, s)/C(N, s)) is T times the probability of a hit.
        let hit = RoundLaw::unfiltered(run.mechanism, run.phase).hit();
        concentrated(run, &mut claims, &BATCH, run.phase.rounds() as f64 * hit, run.g() * e);
    }
    if run.mechanism.differing() == 1 {
        let words = if run.sizes.group_size == 1 { &INDIVIDUAL } else { &GENERAL };
        concentrated(run, &mut claims, words, e, e);
    }
    if run.sizes.group_size == 1 && run.sizes.samples > run.sizes.groups + run.mechanism.differing() {
        lower_for_groups(run, &mut claims, e);
    }
    claims
}

/// The text of a row that claims c² to lie within (1 ± 1/√(2x))·x up to e^{−x}.
struct Words {
    lemma: &'static str,
    table: &'static str,
    guarantee: &'static str,
    limit: &'static str,
    shorthand: &'static str,
}

const BATCH: Words = Words {
    lemma: "Table 1 row 1, Lemma batchsub",
    table: "Table 1 row 1",
    guarantee: "h ≥ G_{√((1+1/√(2qE))·qE)/σ}(min{1, α + e^{−qE}}), q = (N/s)(1 − C(N−g,s)/C(N,s))",
    limit: "h ≤ e^{−qE} + (1 − e^{−qE})·G_{√((1−1/√(2qE))·qE)/σ}(α), q = (N/s)(1 − C(N−g,s)/C(N,s))",
    shorthand: "h ≳ G_{√((1+1/√(2gE))·gE)/σ}",
};

const INDIVIDUAL: Words = Words {
    lemma: "Table 1 row 2, Lemmas indsub and genclipI",
    table: "Table 1 row 2",
    guarantee: "h ≥ G_{√((1+1/√(2E))·E)/σ}(min{1, α + e^{−E}})",
    limit: "h ≤ e^{−E} + (1 − e^{−E})·G_{√((1−1/√(2E))·E)/σ}(α)",
    shorthand: "h ≳ G_{√((1+1/√(2E))·E)/σ}",
};

const GENERAL: Words = Words { lemma: "Table 1 row 2, Lemma genclipI", ..INDIVIDUAL };

/// Lemmas batchsub, indsub and genclipI, with x = qE or E; the tails e^{−x} are Hoeffding's bound without
/// the number of rounds in it (docs/theory.md §7). The printed hats are symmetrised, as in the theorems. The
/// table drops the tails and writes `short` for x.
fn concentrated(run: &Run, claims: &mut Vec<Claim>, words: &Words, x: f64, short: f64) {
    let sigma = run.phase.sigma();
    let high = |x: f64| (1.0 + 1.0 / (2.0 * x).sqrt()) * x;
    let low = |x: f64| ((1.0 - 1.0 / (2.0 * x).sqrt()) * x).max(0.0);
    let tail = (-x).exp();

    let lower = Lower::new(high(x).sqrt() / sigma, tail);
    let mut claim = run.claim(words.lemma, words.guarantee, Side::Guarantee, |delta| lower.epsilon(delta));
    claim.note = run.tails(high(x), x);
    claims.push(claim);

    let upper = Upper { mu: low(x).sqrt() / sigma, u: tail };
    claims.push(run.claim(words.lemma, words.limit, Side::Limit, |delta| upper.epsilon(delta)));

    let ends = [high(short), low(short)].map(|square| square.sqrt() / sigma);
    let mut claim =
        run.claim(words.table, words.shorthand, Side::Approximation, |delta| gaussian(ends[0], delta));
    claim.note =
        Some(format!("the other end of the printed range is ε = {:.4}", gaussian(ends[1], run.delta)));
    claims.push(claim);
}

/// Lemma genlow and Table 2 row 3, with the γ > 0 that gives the smallest ε at each δ.
fn lower_for_groups(run: &Run, claims: &mut Vec<Claim>, e: f64) {
    let sigma = run.phase.sigma();
    let (n, m, g) = (run.sizes.samples as f64, run.sizes.groups as f64, run.g());
    let base = (n / (n - g - m)).exp();
    let mu = |base: f64, gamma: f64| ((base + gamma) * m.min(g) * g * e).sqrt() / sigma;
    let epsilon = |gamma: f64, delta: f64| {
        let l = (-gamma * g * e).exp();
        Lower::new(mu(base, gamma), l).epsilon(delta)
    };
    let mut claim = run.claim(
        "Table 2 row 3, Lemma genlow",
        "h ≥ G_{√((e^{N/(N−g−m)}+γ)·min{m,g}·gE)/σ}(min{1, α + e^{−γgE}})",
        Side::Guarantee,
        |delta| epsilon(best_gamma(&|gamma, left| gaussian(mu(base, gamma), left), g * e, delta), delta),
    );
    let gamma = best_gamma(&|gamma, left| gaussian(mu(base, gamma), left), g * e, run.delta);
    claim.note = Some(format!("with the best γ, here {gamma:.3}"));
    claims.push(claim);
    let mut claim =
        run.claim("Table 2 row 3", "h ≳ G_{√((e+γ)·min{m,g}·gE)/σ}", Side::Approximation, |delta| {
            gaussian(mu(std::f64::consts::E, gamma), delta)
        });
    claim.note = Some(format!(
        "with the best γ of Lemma genlow, here {gamma:.3}; \
         the other end of the printed range, G_0, says nothing"
    ));
    claims.push(claim);
}

/// The γ with the smallest root ε of δ_{G_µ(γ)}(ε) = δ − e^{−γx}, by golden section in
/// y = γx − ln(1/δ) > 0: a small tail costs µ, a large one leaves too little of δ.
fn best_gamma(epsilon: &dyn Fn(f64, f64) -> f64, x: f64, delta: f64) -> f64 {
    let gamma = |ln_y: f64| (ln_y.exp() - delta.ln()) / x;
    let cost = |ln_y: f64| epsilon(gamma(ln_y), -delta * (-ln_y.exp()).exp_m1());
    let golden = 0.5 * (5.0_f64.sqrt() - 1.0);
    let (mut low, mut high) = (1e-3_f64.ln(), 1e3_f64.ln());
    let mut inner = [high - golden * (high - low), low + golden * (high - low)];
    let mut costs = inner.map(cost);
    for _ in 0..14 {
        if costs[0] < costs[1] {
            (high, inner[1], costs[1]) = (inner[1], inner[0], costs[0]);
            inner[0] = high - golden * (high - low);
            costs[0] = cost(inner[0]);
        } else {
            (low, inner[0], costs[0]) = (inner[0], inner[1], costs[1]);
            inner[1] = low + golden * (high - low);
            costs[1] = cost(inner[1]);
        }
    }
    gamma(0.5 * (low + high))
}

/// Table 2 rows 1 and 2, and the limit G_{c·h(σ)} of many rounds.
pub(super) fn blind(run: &Run, exact: Interval) -> Result<Vec<Claim>, PrivacyError> {
    let g = run.mechanism.differing();
    let mut claims = Vec::new();
    // Theorems from the literature: nothing to judge, only to compare.
    let theorem = |source, formula: &str, epsilon, note: Option<&str>| Claim {
        source,
        formula: formula.to_string(),
        adversary: Adversary::A0,
        side: Side::Guarantee,
        epsilon,
        tried: Vec::new(),
        note: note.map(str::to_string),
    };
    let formula = "h = C_{m/N}(G_{1/σ})^{⊗(N/m)E}";
    if g == 1 {
        claims.push(theorem(
            "Table 2 row 1",
            formula,
            exact.middle(),
            Some("this is what the exact value is computed from"),
        ));
    } else {
        let mut single = run.mechanism.config();
        single.differing = 1;
        let single = adversary::curve(&single.check()?, Adversary::A0)?;
        let epsilon = group::epsilon(single.as_ref(), g, run.delta)?;
        let note = (epsilon < exact.lower).then_some(
            "below the direct bound for g that stands as exact; both are guarantees, the smaller one counts",
        );
        let formula = "h = 1 − (1−f)^{∘g}, f = C_{m/N}(G_{1/σ})^{⊗(N/m)E}";
        claims.push(theorem("Table 2 row 2", formula, epsilon, note));
    }
    // √T·m/N = √(E·m/N); for groups the appendix multiplies by g.
    let c = (run.phase.rounds() as f64).sqrt() * run.sizes.groups as f64 / run.sizes.samples as f64 * run.g();
    let sigma = run.phase.sigma();
    let source = if g == 1 {
        "Appendix \"Strong Adversarial Model\", after Dong et al. Cor. 5.4"
    } else {
        "Appendix \"Strong Adversarial Model\", additional remarks"
    };
    let name = if g == 1 { "G_{c·h(σ)}" } else { "G_{c·h(σ)·g}" };
    for (h, text, note) in [
        (
            claim::h(sigma),
            "h(σ) = √(2(e^{σ⁻²}Φ(3/(2σ)) + 3Φ(−1/(2σ)) − 2))",
            "a limit for many rounds, never a guarantee",
        ),
        (
            claim::h_expansion(sigma),
            "h(σ) = σ⁻¹√(1 − (5/8)σ⁻¹/√(2π))",
            "the printed expansion has the wrong sign: h(σ) is larger than 1/σ",
        ),
    ] {
        let formula = format!("h ≈ {name}, c = √T·m/N, {text}");
        let mut claim = run.claim(source, &formula, Side::Approximation, |delta| gaussian(c * h, delta));
        claim.adversary = Adversary::A0;
        claim.note = Some(note.to_string());
        claims.push(claim);
    }
    Ok(claims)
}

/// Table 1 rows 3 to 6.
pub(super) fn shuffled(run: &Run) -> Vec<Claim> {
    let mut claims = Vec::new();
    let sigma = run.phase.sigma();
    let (g, epochs) = (run.g(), run.permutations());
    let batch = run.sizes.batch() as f64;
    let mu = (g * epochs as f64).sqrt() / sigma;
    let left_over = !run.sizes.samples.is_multiple_of(run.sizes.batch())
        || !run.phase.rounds().is_multiple_of(run.phase.sampling().rounds_per_epoch());
    let left_over = left_over.then(|| {
        "samples that are left over, or rounds that an incomplete epoch lacks, are not in the formula"
            .to_string()
    });

    if run.mechanism.differing() == 1 {
        for (side, formula) in
            [(Side::Guarantee, "h = G_{√E/σ}"), (Side::Limit, "h = G_{√E/σ} cannot be improved")]
        {
            let mut claim =
                run.claim("Table 1 row 3, Lemma indshuf", formula, side, |delta| gaussian(mu, delta));
            claim.note = left_over.clone();
            claims.push(claim);
        }
    }

    let one = g.sqrt() / sigma;
    let l = g * g * batch / (run.sizes.samples as f64 - g);
    let lower = Lower::new(one, if l.is_finite() { l } else { 1.0 });
    product(
        run,
        &mut claims,
        ("Table 1 row 4, Lemma genlowshufQ", "h ≥ (α → G_{√g/σ}(min{1, α + g²ms/(N−g)}))^{⊗E}, symmetrised"),
        Side::Guarantee,
        |delta| power::epsilon(|e| lower.delta(e), l.min(1.0), one, epochs, delta),
    );
    let mut claim =
        run.claim("Table 1 row 4", "h ≳ G_{√(gE)/σ}", Side::Approximation, |delta| gaussian(mu, delta));
    claim.note = Some("the other end of the printed range, G_0, says nothing".to_string());
    claims.push(claim);

    if run.sizes.groups == 1 {
        claims.push(run.claim(
            "Table 1 row 5, Lemma batchshuf",
            "h ≥ G_{√(gE)/σ}",
            Side::Guarantee,
            |delta| gaussian(mu, delta),
        ));
        if run.mechanism.differing() <= run.sizes.group_size {
            batches(run, &mut claims, epochs);
        }
    }
    claims
}

/// Lemma batchshuf for g ≤ s, and Table 1 row 6.
fn batches(run: &Run, claims: &mut Vec<Claim>, epochs: u64) {
    let sigma = run.phase.sigma();
    let g = run.g();
    let rounds = run.sizes.samples as f64 / run.sizes.group_size as f64;
    if let Some(law) = Occupancy::printed(rounds, run.mechanism.differing()).power(epochs) {
        let mut claim = run.claim(
            "Lemma batchshuf, law of c",
            "h = f^{⊗E} with f from q_j = C(N/s,j)·C(g−1,j−1)/C(N/s−1+g,g)",
            Side::Guarantee,
            |delta| law.epsilon(sigma, delta),
        );
        claim.note = (run.mechanism.differing() > 1).then(|| {
            "q_j counts occupancy vectors as equally likely, where positions are: too much on small c"
                .to_string()
        });
        claims.push(claim);
    }

    let one = g.sqrt() / sigma;
    let rest = rounds - g - g * g;
    // With no rounds to spare the printed tail is not a probability, and the limit is G_0.
    let u = if rest > 0.0 { (g * g / rest).min(1.0) } else { 1.0 };
    let upper = Upper { mu: one, u };
    product(
        run,
        claims,
        ("Table 1 row 6, Lemma batchshuf", "h ≤ f^U^{⊗E}, f̂^U = u + (1−u)·G_{√g/σ}, u = g²/(N/s−g−g²)"),
        Side::Limit,
        |delta| if u < 1.0 { power::epsilon(|e| upper.delta(e), 0.0, one, epochs, delta) } else { Some(0.0) },
    );
    claims.push(run.claim("Table 1 row 6", "h ≈ G_{√(gE)/σ}", Side::Approximation, |delta| {
        gaussian((g * epochs as f64).sqrt() / sigma, delta)
    }));
}

/// A claim with an E-fold product, left out where the product is too long to compute.
fn product(
    run: &Run,
    claims: &mut Vec<Claim>,
    (source, formula): (&'static str, &str),
    side: Side,
    epsilon: impl Fn(f64) -> Option<f64>,
) {
    let claim = run.claim(source, formula, side, |delta| epsilon(delta).unwrap_or(f64::NAN));
    if !claim.epsilon.is_nan() {
        claims.push(claim);
    }
}

/// Appendix "Probabilistic Filtered Batches": as if σ were doubled.
pub(super) fn filtered(run: &Run) -> Result<Vec<Claim>, PrivacyError> {
    let mut config = run.mechanism.config();
    config.phases.iter_mut().for_each(|phase| phase.filtered = false);
    let whole = config.check()?;
    let sigma = run.phase.sigma();
    let law = law(&whole)?;
    let curve: Box<dyn Curve> = match &law {
        Some(law) => Box::new(Mixture::new(law, 2.0 * sigma, 0.0)),
        None => {
            config.phases.iter_mut().for_each(|phase| phase.noise = NoiseScale::Sigma(2.0 * sigma));
            adversary::curve(&config.check()?, Adversary::A1)?
        }
    };
    let epsilon = curve.epsilon(run.delta)?.middle();
    let mut claim = run.claim(
        "Appendix \"Probabilistic Filtered Batches\"",
        "as if σ were 2σ: G_{k/(2σ)} for a round with k groups hit",
        Side::Approximation,
        |_| epsilon,
    );
    // E[k'²] = (k² + k)/4 for k' ~ Binomial(k, ½): a quarter only for large k, a half for k = 1.
    claim.note = law.as_ref().zip(run.law.as_ref()).map(|(all, kept)| {
        format!("filtering divides √E[c²] by {:.2}, not by 2", (all.mean() / kept.mean()).sqrt())
    });
    Ok(vec![claim])
}
