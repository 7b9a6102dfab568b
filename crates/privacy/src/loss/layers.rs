//! A bound on how far a characteristic function falls: the density cut into layers, each of them uniform.

/// Uniform distributions (probability, width) whose mixture lies below a law.
pub(super) struct Layers(Vec<(f64, f64)>);

impl Layers {
    /// Those of densities given at nodes along stretches of the line.
    pub(super) fn new(stretches: &[Vec<(f64, f64)>]) -> Self {
        let mut layers = Vec::new();
        for along in stretches {
            add_layers(along, &mut layers);
        }
        Self(fewer(layers))
    }

    /// How much is missing from one in a bound on |φ(t')| for every t' ≥ t: |φ| ≤ Σ (probability of a
    /// layer)·|sinc| + the probability outside the layers.
    pub(super) fn lost(&self, t: f64) -> f64 {
        self.0.iter().map(|&(m, d)| m * (1.0 - sinc_envelope(0.5 * t * d))).sum()
    }
}

/// Cuts a density, given at nodes along the line, into horizontal layers: uniform distributions on
/// nested intervals. The density is first lowered to one with a single mode; on a cell it is taken
/// as the smaller of its values at the ends (the nodes resolve it to many digits). Khinchine's
/// representation: for a single mode nothing is lost.
fn add_layers(along: &[(f64, f64)], layers: &mut Vec<(f64, f64)>) {
    let mut cells: Vec<f64> = along.windows(2).map(|p| p[0].1.min(p[1].1)).collect();
    if cells.is_empty() {
        return;
    }
    let mode = (0..cells.len()).fold(0, |best, i| if cells[i] > cells[best] { i } else { best });
    for i in (0..mode).rev() {
        cells[i] = cells[i].min(cells[i + 1]);
    }
    for i in mode + 1..cells.len() {
        cells[i] = cells[i].min(cells[i - 1]);
    }
    let (mut low, mut high) = (0, cells.len() - 1);
    let mut level = 0.0;
    loop {
        let next = cells[low].min(cells[high]);
        let width = (along[high + 1].0 - along[low].0).abs();
        if next > level && (next - level) * width > 1e-25 {
            layers.push(((next - level) * width, width));
        }
        level = level.max(next);
        if low == high {
            return;
        }
        if cells[low] <= cells[high] && low < mode || high == mode {
            low += 1;
        } else {
            high -= 1;
        }
    }
}

/// Layers of nearly the same width as one of the smallest width among them: the envelope can only grow.
fn fewer(mut layers: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    layers.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (probability, width) in layers {
        match kept.last_mut() {
            Some(last) if width <= 1.02 * last.1 => last.0 += probability,
            _ => kept.push((probability, width)),
        }
    }
    kept
}

/// sup over x' ≥ x of |sin x'/x'|, from above.
fn sinc_envelope(x: f64) -> f64 {
    // The first side lobe of |sin x/x| is 0.21724, at x = 4.4934.
    if x < 2.6 {
        if x < 1e-4 { 1.0 - x * x / 7.0 } else { x.sin() / x }
    } else {
        // For x ≥ 1/0.21724 the bound 1/x is the smaller one whatever the sine is; sines of huge numbers are
        // slow.
        if x > 4.7 { 1.0 / x } else { (1.0 / x).min(0.217_24_f64.max(x.sin() / x)) }
    }
}
