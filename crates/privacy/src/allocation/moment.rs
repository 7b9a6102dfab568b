//! M(w) = E_Q L^w at the nodes of a line, in fixed point with its error.
//!
//! With λ = e^u, ∫ e^{−wu} φ(λ)^B du = Γ(−w)·B^w·M(w), and the same with e^{−λ} for φ is Γ(−w)·B^w. Both
//! integrals are taken by the trapezoidal rule on the same ray Im u = −ψ; M is their quotient, so that Γ is
//! never evaluated, and the sums for all nodes t = jΔ are one Fourier transform each. φ itself is the
//! convolution
//!
//! ```text
//! φ(e^{x−iψ}) = ∫ exp(−e^{v−iψ₁}) n_s(v − x + s²/2 + i(ψ−ψ₁)) dv,     n_s the density of N(0, s²).
//! ```

use std::f64::consts::{FRAC_PI_2, TAU};

use super::Phase;
use super::complex::{Complex, Float, transform, transform_error, twiddles};
use super::elementary::Elementary;
use super::fixed::Fixed;
use super::laplace::{LogNormal, ln_aliases};
use super::plan::{BITS_OF_C, PhasePlan, Plan, Ray, ln_term, mantissa};
use crate::error::PrivacyError;

/// A value and a bound on its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Certified<const N: usize> {
    pub(super) value: Float<N>,
    /// ln of the bound.
    pub(super) ln_error: f64,
}

/// Computes the moments of one phase on one line.
pub(super) struct Moments<'a, const N: usize> {
    pub(super) tables: &'a Elementary<N>,
    pub(super) phase: &'a Phase,
    pub(super) law: &'a LogNormal,
    pub(super) plan: &'a Plan,
    pub(super) rays: &'a PhasePlan,
}

/// exp(−e^{v−iψ₁}) at v = ih − s²/2, from i = `first` on.
struct Table<const N: usize> {
    first: i64,
    real: Vec<Fixed<N>>,
    /// Empty when ψ₁ = 0.
    imaginary: Vec<Fixed<N>>,
}

/// One of the two sums of a ray, as terms and then transformed.
struct Sums<const N: usize> {
    values: Vec<Complex<N>>,
    /// The error of every sum, relative to 2^`exponent`.
    error: f64,
    exponent: i64,
}

/// A term e^{c(x−centre)}·(…)^B.
struct Term<const N: usize> {
    k: i64,
    value: Float<N>,
    /// ln of a bound on its size.
    ln_bound: f64,
    /// Relative.
    error: f64,
}

impl<const N: usize> Moments<'_, N> {
    /// M at every node.
    pub(super) fn all(&self) -> Result<Vec<Certified<N>>, PrivacyError> {
        let finest = self.rays.length * self.rays.finer;
        let roots = twiddles(finest, &|k| self.tables.root(k, finest));
        let every: Vec<_> = roots.iter().step_by(self.rays.finer).copied().collect();
        let mut result = Vec::with_capacity(self.plan.nodes);
        let mut shared: Option<Table<N>> = None;
        for ray in &self.rays.rays {
            // c·(x − centre) must fit before the point.
            let reach = |range: (i64, i64), h: f64| {
                let centre = ray.centre as f64 * self.step();
                self.plan.c * (range.0 as f64 * h - centre).abs().max((range.1 as f64 * h - centre).abs())
            };
            let fine = self.step() / self.rays.finer as f64;
            if reach(ray.range, self.step()).max(reach(ray.fine_range, fine)) > 30_000.0 {
                return Err(not_certified("too wide a range"));
            }
            let mut above = match ray.series {
                Some(terms) => self.above_by_series(ray, terms),
                None => {
                    if ray.table_psi > 0.0 || shared.is_none() {
                        shared = Some(self.table(ray)?);
                    }
                    let Some(table) = &shared else { continue };
                    self.above(ray, table)
                }
            };
            let mut below = self.below(ray);
            transform(&mut above.values, &every);
            transform(&mut below.values, &roots);
            for j in ray.nodes.0..=ray.nodes.1 {
                result.push(quotient(&above, &below, j)?);
            }
        }
        if result.len() == self.plan.nodes {
            Ok(result)
        } else {
            Err(not_certified("a stretch of the line has no ray"))
        }
    }

    /// kh, to |kh| + 2 units.
    fn x(&self, k: i64) -> Fixed<N> {
        self.fine_x(k, 1)
    }

    /// kh/finer, with the same error: πk·2^shift/b, in two parts so that a shift to the right rounds twice
    /// only. Whatever overflows on the way comes back, as in all arithmetic modulo a power of two.
    fn fine_x(&self, k: i64, finer: usize) -> Fixed<N> {
        let (b, a) = self.plan.step;
        let shift = 1 - i64::from(a) - i64::from((self.rays.length * finer).ilog2());
        let pi = self.tables.pi;
        (pi.times(k >> 12).scaled(12 + shift) + pi.times(k & 4095).scaled(shift)).divided(b)
    }

    fn step(&self) -> f64 {
        TAU / (self.rays.length as f64 * self.plan.delta())
    }

    /// Units of error of [`x`](Self::x), and of a finer step.
    fn x_error(&self, k: i64) -> f64 {
        (k as f64 * self.step()).abs() + 2.0
    }

    fn s(&self) -> f64 {
        1.0 / self.phase.noise_multiplier
    }

    fn half_variance(&self) -> Fixed<N> {
        let s = Fixed::<N>::from_f64(self.phase.noise_multiplier).reciprocal();
        (s * s).shifted_right(1)
    }

    /// The table for a ray; for ψ₁ = 0 it covers all rays.
    fn table(&self, ray: &Ray) -> Result<Table<N>, PrivacyError> {
        let h = self.step();
        let (sin, cos) = ray.table_psi.sin_cos();
        let all = || self.rays.rays.iter().filter(|r| r.table_psi == ray.table_psi && r.series.is_none());
        let first = all().map(|r| r.range.0 - r.half_width * r.stride).min().unwrap_or(0);
        let last = all().map(|r| r.range.1 + r.half_width * r.stride).max().unwrap_or(0);
        // From here on |exp(−e^v)| is below a unit.
        let highest = ((f64::from(Fixed::<N>::FRACTION) * 0.7 + 2.0) / cos).ln();
        if highest > 9.5 || cos <= 0.0 {
            return Err(not_certified("a ray too close to the imaginary axis"));
        }
        // b·x must fit before the point.
        let furthest =
            all().map(|r| r.range.0.abs().max(r.range.1.abs())).max().unwrap_or(0).max(first.abs());
        if furthest as f64 * h > 450.0 {
            return Err(not_certified("too wide a range"));
        }
        let half_variance = self.half_variance();
        let last = last.min(((highest + half_variance.to_f64()) / h).ceil() as i64).max(first);
        let block = ((last - first + 1) as f64).sqrt().ceil().max(1.0) as i64;
        let exp = |k: i64, shift: Fixed<N>| self.tables.exp(self.x(k) - shift);
        let fine: Vec<_> = (0..block).map(|i| exp(i, Fixed::ZERO)).collect();
        let turn = self.tables.turn(Fixed::from_f64(ray.table_psi));
        let (mut real, mut imaginary) = (Vec::new(), Vec::new());
        let mut coarse = Float::one();
        for i in first..=last {
            let inner = (i - first) % block;
            if inner == 0 {
                coarse = exp(i, half_variance);
            }
            let lambda = coarse.times(fine[inner as usize]).to_fixed(0).re;
            if sin == 0.0 {
                real.push(self.tables.exp(-lambda).to_fixed(0).re);
            } else {
                let size = self.tables.exp(-(lambda * turn.re)).to_fixed(0).re;
                let value = self.tables.turn(lambda * turn.im).times_real(size);
                real.push(value.re);
                imaginary.push(value.im);
            }
        }
        Ok(Table { first, real, imaginary })
    }

    /// n_s(y + iα)·(step) at y = j·stride·h for j from 0 on, and the sum of the errors of the whole kernel
    /// in units.
    fn kernel(&self, ray: &Ray) -> (Vec<Complex<N>>, f64) {
        let z = Fixed::<N>::from_f64(self.phase.noise_multiplier);
        let zf = self.phase.noise_multiplier;
        let alpha = Fixed::<N>::from_f64(ray.psi) - Fixed::from_f64(ray.table_psi);
        let turned = alpha * z;
        let root = inverse_root(self.tables.pi.times(2));
        let norm = self.x(ray.stride) * z * root;
        let mut error = 0.0;
        let kernel = (0..=ray.half_width)
            .map(|j| {
                let y = self.x(j * ray.stride) * z;
                let exponent = (turned * turned - y * y).shifted_right(1);
                let size = self.tables.exp(exponent).to_fixed(0).re * norm;
                let value = self.tables.turn(-(y * turned)).times_real(size);
                let (yf, of) = (y.to_f64(), exponent.to_f64());
                // The errors of y and of the turned part enter the exponent times their sizes.
                let inner = (self.x_error(j * ray.stride) + 2.0) * zf + 2.0;
                let relative = 2.0 * (yf + turned.to_f64()) * (inner + zf + 2.0)
                    + Elementary::<N>::exp_error(of)
                    + Elementary::<N>::turn_error(yf * turned.to_f64())
                    + 8.0;
                let norm_error = (self.x_error(ray.stride) * zf + zf + 8.0) * of.exp();
                error += 2.0 * (relative * size.to_f64().abs() + norm_error + 8.0);
                value
            })
            .collect();
        (kernel, error)
    }

    /// Bound on what the quadrature of φ and the cut of its kernel leave out.
    fn quadrature_error(&self, ray: &Ray) -> f64 {
        let s = self.s();
        let h = ray.stride as f64 * self.step() * (1.0 + 1e-12);
        let alpha = ray.psi - ray.table_psi;
        let room = (FRAC_PI_2 - ray.table_psi) * (1.0 - 1e-12);
        let ln_quadrature = (1..=80)
            .map(|i| room * f64::from(i) / 80.0)
            .map(|d| {
                (d + alpha) * (d + alpha) / (2.0 * s * s) - TAU * d / h - (-(-TAU * d / h).exp()).ln_1p()
            })
            .fold(f64::INFINITY, f64::min);
        let reach = ray.half_width as f64 * h / s;
        let ln_cut = 0.5 * (alpha * alpha / (s * s) - reach * reach);
        1.001 * (2.0 * ln_quadrature.exp() + ln_cut.exp())
    }

    /// φ at one point of the ray.
    fn phi(&self, table: &Table<N>, kernel: &[Complex<N>], k: i64, stride: i64) -> Complex<N> {
        let len = table.real.len() as i64;
        let at = |values: &[Fixed<N>], i: i64| {
            if i < 0 || i >= len { Fixed::ZERO } else { values[i as usize] }
        };
        let centre = k - table.first;
        let complex = !table.imaginary.is_empty();
        let mut sum = Complex::new(at(&table.real, centre), Fixed::ZERO);
        if complex {
            sum.im = at(&table.imaginary, centre);
        }
        sum = sum.times_real(kernel[0].re);
        let turned = kernel.len() > 1 && kernel[1].im != Fixed::ZERO;
        for (j, weight) in kernel.iter().enumerate().skip(1) {
            let (up, down) = (centre + j as i64 * stride, centre - j as i64 * stride);
            let (a, b) = (at(&table.real, up), at(&table.real, down));
            sum.re = sum.re + (a + b) * weight.re;
            if turned {
                sum.im = sum.im + (a - b) * weight.im;
            }
            if complex {
                let (a, b) = (at(&table.imaginary, up), at(&table.imaginary, down));
                sum.im = sum.im + (a + b) * weight.re;
                sum.re = sum.re - (a - b) * weight.im;
            }
        }
        sum
    }

    /// e^{c·x} for x = k·h/finer − centre, its exponent, and its relative error in units.
    fn tilt(&self, ray: &Ray, k: i64, finer: usize) -> (Float<N>, f64, f64) {
        let (b, a) = mantissa(self.plan.c, BITS_OF_C);
        let k = k - ray.centre * finer as i64;
        let exponent = self.fine_x(k, finer).times(b as i64).scaled(i64::from(a));
        let x = exponent.to_f64();
        let error = Elementary::<N>::exp_error(x) + self.plan.c * self.x_error(k) + 64.0;
        (self.tables.exp(exponent), x, error)
    }

    /// The sum of e^{cx}·φ^B.
    fn above(&self, ray: &Ray, table: &Table<N>) -> Sums<N> {
        let unit = Fixed::<N>::unit();
        let (h, s) = (self.step(), self.s());
        let (kernel, kernel_error) = self.kernel(ray);
        let alpha = ray.psi - ray.table_psi;
        // ∫|n_s(y + iα)|, and what the errors of the table become under it: λ errs by `of_lambda` relative,
        // and λ·|exp(−λe^{−iψ₁})| is at most 0.37/cos ψ₁.
        let weight = 1.01 * (0.5 * alpha * alpha / (s * s)).exp();
        let furthest = ray.range.0.abs().max(ray.range.1.abs()) + ray.half_width * ray.stride;
        // s² comes from a reciprocal that errs by 4s² units.
        let of_lambda = 96.0 + 8.0 * s.powi(3) + 4.0 * furthest as f64 * h + 2.0 * self.x_error(furthest);
        let largest = 0.37 / ray.table_psi.cos();
        let beside = 96.0
            + 48.0 * ray.table_psi.tan()
            + kernel_error / weight
            + 4.0 * (2.0 * ray.half_width as f64 + 1.0);
        let quadrature = self.quadrature_error(ray);
        let phi = |k: i64| {
            let lambda = (k as f64 * h).exp();
            let error = unit * weight * (lambda.min(largest) * of_lambda + beside) + quadrature;
            (self.phi(table, &kernel, k, ray.stride), error)
        };
        self.powers(ray, &phi)
    }

    /// The same with φ from its series in λ, which errs by at most the first term that is left out.
    fn above_by_series(&self, ray: &Ray, terms: usize) -> Sums<N> {
        let unit = Fixed::<N>::unit();
        let (h, s) = (self.step(), self.s());
        let half_variance = self.half_variance();
        let mut factorial = Fixed::<N>::one();
        let mut coefficients = Vec::with_capacity(terms);
        // Errors of the coefficients in units; all of them are below e^6.
        let mut error = 8.0 * terms as f64;
        for k in 0..terms {
            if k > 0 {
                factorial = factorial.divided(k as u64);
            }
            let exponent = half_variance.times((k * k.max(1) - k) as i64);
            let power = self.tables.exp(exponent);
            let value = power.times(Float::new(Complex::new(factorial, Fixed::ZERO), 0)).to_fixed(0).re;
            let of_power = Elementary::<N>::exp_error(exponent.to_f64()) + 8.0 * (k * k) as f64 + 64.0;
            // The factorial errs by two units, relative to itself.
            error += value.to_f64() * of_power + 4.0 * exponent.to_f64().exp() + 2.0;
            coefficients.push(if k % 2 == 1 { -value } else { value });
        }
        let turn = self.tables.turn(-Fixed::from_f64(ray.psi));
        let ln_rest = ln_term(s, terms) + 1e-9;
        let phi = |k: i64| {
            let x = k as f64 * h;
            let lambda = turn.times_real(self.tables.exp(self.x(k)).to_fixed(0).re);
            let zero = Complex::ZERO;
            let sum =
                coefficients.iter().rev().fold(zero, |sum, &a| sum * lambda + Complex::new(a, Fixed::ZERO));
            // |λ| ≤ ½: the roundings of Horner's steps add up to twice one; |dφ/dλ| is at most 2e^6.
            let of_lambda = 128.0 + 2.0 * self.x_error(k) + 4.0 * x.abs();
            let rounding = error + 16.0 + 1000.0 * x.exp() * of_lambda + 128.0;
            (sum, unit * rounding + 1.001 * (ln_rest + terms as f64 * x).exp())
        };
        self.powers(ray, &phi)
    }

    /// The terms e^{cx}·φ^B for φ and its error at each point.
    fn powers(&self, ray: &Ray, phi: &dyn Fn(i64) -> (Complex<N>, f64)) -> Sums<N> {
        let unit = Fixed::<N>::unit();
        let b = self.phase.rounds as f64;
        let terms = (ray.range.0..=ray.range.1)
            .map(|k| {
                let (tilted, exponent, tilted_error) = self.tilt(ray, k, 1);
                let (phi, error) = phi(k);
                Term {
                    k,
                    value: tilted.times(Float::new(phi, 0).power(self.phase.rounds)),
                    ln_bound: exponent + b * (phi.size() + error).ln(),
                    error: 1.001 * b * (error / phi.size() + 2.0 * Float::<N>::ROUNDING * unit)
                        + tilted_error * unit,
                }
            })
            .collect();
        let left_out = self.left_out(ray, 1, ray.range, &|l| self.law.ln_phi(l));
        let decay = 1.0 / (self.phase.noise_multiplier.powi(2) * b);
        let aliases = self.ln_aliases(ray, 1, decay) + self.rays.ln_moment;
        folded(terms, self.rays.length, &[left_out.0, left_out.1, aliases])
    }

    /// The sum of e^{cx}·e^{−Bλ} on the finer grid.
    fn below(&self, ray: &Ray) -> Sums<N> {
        let unit = Fixed::<N>::unit();
        let finer = self.rays.finer;
        let h = self.step() / finer as f64;
        let b = self.phase.rounds as f64;
        let turn = self.tables.turn(Fixed::from_f64(ray.psi));
        let terms = (ray.fine_range.0..=ray.fine_range.1)
            .map(|k| {
                let lambda = (k as f64 * h).exp();
                let (tilted, exponent, tilted_error) = self.tilt(ray, k, finer);
                let ln_bound = exponent - b * lambda * ray.psi.cos() + 1e-9 * (1.0 + b * lambda);
                if lambda > 8000.0 {
                    let value = Float::new(Complex::ZERO, 0);
                    return Term { k, value, ln_bound, error: f64::INFINITY };
                }
                // As many copies as fit before the point go into the exponent, the others into a power.
                let copies = self.phase.rounds.min((8000.0 / lambda) as u64).max(1);
                let (powers, rest) = (self.phase.rounds / copies, self.phase.rounds % copies);
                let one = self.tables.exp(self.fine_x(k, finer));
                let exp = |copies: u64| {
                    let fixed = one.times(Float::from_f64(copies as f64, 0.0)).to_fixed(0).re;
                    let angle = Float::new(self.tables.turn(fixed * turn.im), 0);
                    self.tables.exp(-(fixed * turn.re)).times(angle)
                };
                let mut value = exp(copies).power(powers);
                if rest > 0 {
                    value = value.times(exp(rest));
                }
                // λ errs by its exponent's error; exp and turn by theirs, once for each factor.
                let relative = 2.0 * self.x_error(k) + 160.0 + 4.0 * (k as f64 * h).abs();
                let each = 128.0 + 8.0 * Float::<N>::ROUNDING;
                let error = b * lambda * relative + (powers as f64 + 1.0) * each;
                Term { k, value: tilted.times(value), ln_bound, error: (1.001 * error + tilted_error) * unit }
            })
            .collect();
        let left_out = self.left_out(ray, finer, ray.fine_range, &|l| -l);
        let aliases = self.ln_aliases(ray, finer, 0.0);
        let mut sums = folded(terms, self.rays.length * finer, &[left_out.0, left_out.1, aliases]);
        // There are `finer` times as many terms.
        sums.exponent -= i64::from(finer.ilog2());
        sums
    }

    /// ln of what lies left and right of the range, as a sum of terms. They are log-concave in x on the ray
    /// (in size they are at most e^{cx}·φ(e^x cos ψ)^B), so past two points they fall at least as they fell
    /// between them.
    fn left_out(
        &self,
        ray: &Ray,
        finer: usize,
        range: (i64, i64),
        ln_factor: &dyn Fn(f64) -> f64,
    ) -> (f64, f64) {
        let h = self.step() / finer as f64;
        let (c, b) = (self.plan.c, self.phase.rounds as f64);
        let centre = ray.centre as f64 * self.step();
        let ln_cos = ray.psi.cos().ln();
        let at = |k: i64| {
            let x = k as f64 * h;
            c * (x - centre) + b * ln_factor((x + ln_cos).exp())
        };
        let beyond = |inside: i64, outside: i64| {
            let (first, next) = (at(outside), at(inside));
            let fall = (next - first) * (1.0 - 1e-6) - 1e-9;
            if fall > 0.0 { first + 1e-9 * (1.0 + c) - (-(-fall).exp_m1()).ln() } else { f64::INFINITY }
        };
        (beyond(range.0, range.0 - 1), beyond(range.1, range.1 + 1))
    }

    /// ln of the aliases of a sum, over those of M.
    fn ln_aliases(&self, ray: &Ray, finer: usize, decay: f64) -> f64 {
        let c = self.plan.c;
        let delta = self.plan.delta();
        let h = self.step() / finer as f64;
        let t = (ray.nodes.0 as f64 * delta, ray.nodes.1 as f64 * delta);
        let omega = (self.rays.length * finer) as f64 * delta;
        let centre = ray.centre as f64 * self.step();
        let b = self.phase.rounds as f64;
        ln_aliases(c, ray.psi, t, omega, decay) - c * (b.ln() + centre) - h.ln() + 1e-9 * (1.0 + c)
    }
}

/// Terms put at their places of the transform, with the errors of every sum: `ln_left_out` are ln of what
/// is missing.
fn folded<const N: usize>(terms: Vec<Term<N>>, length: usize, ln_left_out: &[f64]) -> Sums<N> {
    let unit = Fixed::<N>::unit();
    let exponent =
        terms.iter().filter(|t| t.value.ln_size().is_finite()).map(|t| t.value.exponent()).max().unwrap_or(0);
    let ln_scale = exponent as f64 * std::f64::consts::LN_2;
    let mut values = vec![Complex::ZERO; length];
    let (mut error, mut size) = (0.0, 0.0);
    for term in terms {
        if term.error.is_nan() || term.error > 0.5 {
            // Not resolved: left out at the price of its size.
            error += 1.001 * (term.ln_bound - ln_scale).exp() + unit;
            continue;
        }
        let fixed = term.value.to_fixed(exponent);
        let place = &mut values[term.k.rem_euclid(length as i64) as usize];
        *place = *place + fixed;
        size += fixed.size();
        error += fixed.size() * 1.001 * term.error.exp_m1() + 3.0 * unit;
    }
    error += ln_left_out.iter().map(|ln| 1.001 * (ln - ln_scale).exp()).sum::<f64>();
    error += unit * transform_error(length, size);
    Sums { values, error, exponent }
}

/// The quotient of two sums with its error.
fn quotient<const N: usize>(
    above: &Sums<N>,
    below: &Sums<N>,
    j: usize,
) -> Result<Certified<N>, PrivacyError> {
    // A transform shorter than the line repeats itself.
    let (a, b) = (above.values[j % above.values.len()], below.values[j % below.values.len()]);
    let size = b.size();
    if size.is_nan() || size <= 4.0 * below.error || !above.error.is_finite() {
        return Err(not_certified("cancellation on a ray"));
    }
    let shift = above.exponent - below.exponent;
    let value = Float::new(a, shift).times(Float::new(b, 0).reciprocal());
    let absolute = (above.error + a.size() / size * below.error) / (size - below.error);
    let rounding = 8.0 * Float::<N>::ROUNDING * Fixed::<N>::unit() * a.size() / size;
    let ln_error = (1.001 * (absolute + rounding)).ln() + shift as f64 * std::f64::consts::LN_2;
    Ok(Certified { value, ln_error: ln_error + 1e-9 })
}

/// 1/√x for x near 6, to a few units.
fn inverse_root<const N: usize>(x: Fixed<N>) -> Fixed<N> {
    let mut y = Fixed::from_f64(1.0 / x.to_f64().sqrt());
    let three = Fixed::from_f64(3.0);
    let mut good = 48;
    while good < 64 * N {
        y = (y * (three - x * y * y)).shifted_right(1);
        good *= 2;
    }
    y
}

fn not_certified(why: &str) -> PrivacyError {
    PrivacyError::NotCertified { what: "random allocation", why: why.to_string() }
}
