//! The kernels against the same functions in double precision, on every instruction set of the machine.

mod common;

use common::{EVERY, EVERY_NUMBER, Numbers};
use dpsgd_kernels::dots::Dots;
use dpsgd_kernels::multiply::{Places, Product, Walk};
use dpsgd_kernels::{Level, SLACK, elementwise, gaussian};

#[test]
fn tanh_and_sigmoid_are_exact_to_single_precision() {
    let grid: Vec<f32> = (-40_000..=40_000)
        .step_by(EVERY_NUMBER)
        .map(|i| i as f32 / 2_000.0)
        .chain([1e-30, -1e-30, 1e30, -1e30])
        .collect();
    for level in Level::available() {
        let (mut tanh, mut sigmoid) = (grid.clone(), grid.clone());
        elementwise::tanh(level, &mut tanh);
        elementwise::sigmoid(level, &mut sigmoid);
        for ((&x, &t), &s) in grid.iter().zip(&tanh).zip(&sigmoid) {
            let exact = f64::from(x).tanh();
            assert!((f64::from(t) - exact).abs() <= 4e-7 * exact.abs(), "{level:?} tanh {x}: {t} {exact}");
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(s) - exact).abs() <= 4e-7, "{level:?} sigmoid {x}: {s} {exact}");
        }
    }
}

#[test]
fn relu_keeps_a_nan_in_sight() {
    for level in Level::available() {
        let mut x = [f32::NAN, -1.0, 0.0, 2.0, f32::NEG_INFINITY];
        elementwise::relu(level, &mut x);
        assert!(x[0].is_nan());
        assert_eq!(x[1..], [0.0, 0.0, 2.0, 0.0]);
    }
}

/// The other activations against double precision, and their derivatives against the closed forms; a NaN
/// stays one and the largest numbers do not become one.
#[test]
fn smooth_activations_are_exact_to_single_precision() {
    let grid: Vec<f32> =
        (-2000..=2000).step_by(EVERY_NUMBER).map(|i| i as f32 * 0.01).chain([-1e30, 1e30]).collect();
    let root = (2.0 / std::f64::consts::PI).sqrt();
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    type Exact<'a> = &'a dyn Fn(f64) -> f64;
    let gelu = |x: f64| x * logistic(2.0 * root * (x + 0.044715 * x.powi(3)));
    let gelu_slope = |x: f64| {
        let s = logistic(2.0 * root * (x + 0.044715 * x.powi(3)));
        let inner = 2.0 * root * (1.0 + 3.0 * 0.044715 * x * x);
        if x.abs() > 1e9 { s } else { s + x * s * (1.0 - s) * inner }
    };
    let silu_slope = |x: f64| logistic(x) + if x.abs() > 1e9 { 0.0 } else { x * logistic(x) * logistic(-x) };
    let elu = |x: f64| if x > 0.0 { x } else { 0.7 * x.exp_m1() };
    let elu_slope = |x: f64| if x > 0.0 { 1.0 } else { 0.7 * x.exp() };
    type Forward = fn(Level, &mut [f32]);
    type Backward = fn(Level, &[f32], &mut [f32]);
    let cases: [(&str, Forward, Backward, bool, Exact, Exact); 3] = [
        ("gelu", elementwise::gelu, elementwise::gelu_backward, true, &gelu, &gelu_slope),
        ("silu", elementwise::silu, elementwise::silu_backward, true, &|x: f64| x * logistic(x), &silu_slope),
        (
            "elu",
            |level, x| elementwise::elu(level, 0.7, x),
            |level, y, d| elementwise::elu_backward(level, 0.7, y, d),
            false,
            &elu,
            &elu_slope,
        ),
    ];
    for level in Level::available() {
        for (name, forward, backward, from_input, value, slope) in cases {
            let mut y = grid.clone();
            forward(level, &mut y);
            let mut d = vec![1.0; grid.len()];
            backward(level, if from_input { &grid } else { &y }, &mut d);
            for ((&x, &y), &d) in grid.iter().zip(&y).zip(&d) {
                let [exact, exact_slope] = [value(f64::from(x)), slope(f64::from(x))];
                let near =
                    |found: f32, exact: f64| (f64::from(found) - exact).abs() <= 1e-6 * (1.0 + exact.abs());
                assert!(
                    near(y, exact) && near(d, exact_slope),
                    "{level:?} {name} {x}: {y} {exact} {d} {exact_slope}"
                );
            }
            let mut broken = [f32::NAN];
            forward(level, &mut broken);
            assert!(broken[0].is_nan(), "{level:?} {name}");
        }
        let mut x = [-2.0, -0.0, 3.0, f32::NAN];
        elementwise::leaky_relu(level, 0.1, &mut x);
        assert_eq!(x[..3], [-0.2, 0.0, 3.0]);
        assert!(x[3].is_nan());
        let mut d = [1.0; 3];
        elementwise::leaky_relu_backward(level, 0.1, &x[..3], &mut d);
        assert_eq!(d, [0.1, 0.1, 1.0]);
    }
}

#[test]
fn normal_numbers_are_those_of_box_and_muller() {
    let mut numbers = Numbers(11);
    let mut word = || (numbers.unit() * 65536.0) as u32 * 65536 + (numbers.unit() * 65536.0) as u32;
    let half = 4096;
    let mut bits: Vec<u32> = (0..3 * half).map(|_| word()).collect();
    // The ends of the radius and the quarters of the angle.
    bits[..6].copy_from_slice(&[0, u32::MAX, 0, 1, u32::MAX, 0]);
    bits[half..half + 6].copy_from_slice(&[0, u32::MAX, u32::MAX, 5, 0, 1 << 31]);
    for i in 0..64 {
        bits[2 * half + 100 + i] = ((i as u32) << 26).wrapping_sub(1 + (i as u32 & 1));
    }
    for level in Level::available() {
        let mut out = vec![0.0f32; 2 * half];
        gaussian::standard_normal(level, &bits, &mut out);
        for i in (0..half).step_by(EVERY_NUMBER) {
            let u = (f64::from(bits[i]) * 2f64.powi(32) + f64::from(bits[half + i]) + 0.5) * 2f64.powi(-64);
            // Near 1, by the distance from it, which double precision would round away as well.
            let rest =
                (f64::from(!bits[i]) * 2f64.powi(32) + f64::from(!bits[half + i]) + 0.5) * 2f64.powi(-64);
            let minus_ln = if rest < 0.5 { -(-rest).ln_1p() } else { -u.ln() };
            let radius = (2.0 * minus_ln).sqrt();
            let angle = std::f64::consts::TAU * f64::from(bits[2 * half + i]) * 2f64.powi(-32);
            let exact = [radius * angle.cos(), radius * angle.sin()];
            for (found, exact) in [out[i], out[half + i]].into_iter().zip(exact) {
                assert!((f64::from(found) - exact).abs() < 1e-6 * radius, "{level:?} {i}: {found} {exact}");
            }
        }
        assert!(
            out[0].hypot(out[half]) > 9.4,
            "the smallest radius word reaches beyond 9.4 standard deviations"
        );
    }
}

#[test]
fn products_match_the_plain_sum() {
    let mut numbers = Numbers(5);
    for level in Level::available() {
        for columns in [1, 3, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40] {
            for rows in [1usize, 2, 5, 6, 7, 12, 13, 25].into_iter().step_by(EVERY) {
                let (outer, inner) = (2, 5);
                let a = numbers.vector(rows * 40 + 40);
                let b = numbers.vector(outer * inner * columns + 64);
                let starts: Vec<u32> = (0..rows).map(|r| (r * 3) as u32).collect();
                let places: Vec<u32> = (0..rows).map(|r| (r * columns) as u32).collect();
                let walk = Walk { outer, inner, a: [7, 2], b: [inner * columns, columns] };
                let product =
                    Product { a: &a, rows: Places::new(&starts), b: &b, panel: level.panel(), walk, columns };
                let bias = numbers.vector(columns + SLACK);
                let exact: Vec<f64> = (0..rows * columns)
                    .map(|i| {
                        let (r, j) = (i / columns, i % columns);
                        let terms = (0..outer * inner).map(|k| {
                            let (o, i) = (k / inner, k % inner);
                            f64::from(a[r * 3 + o * 7 + i * 2]) * f64::from(b[k * columns + j])
                        });
                        terms.sum()
                    })
                    .collect();
                let mut c = vec![1.0; rows * columns];
                product.add(level, &mut c, Places::new(&places));
                let near = |found: f32, exact: f64| (f64::from(found) - exact).abs() < 1e-5;
                assert!(
                    c.iter().zip(&exact).all(|(&c, e)| near(c, e + 1.0)),
                    "{level:?} {rows} × {columns} add"
                );
                product.store(level, Some(&bias), &mut c, Places::new(&places));
                let with = exact.iter().enumerate().map(|(i, e)| e + f64::from(bias[i % columns]));
                assert!(c.iter().zip(with).all(|(&c, e)| near(c, e)), "{level:?} {rows} × {columns} store");
                let square = product.store_squared(level, &mut c, Places::new(&places));
                assert!(
                    c.iter().zip(&exact).all(|(&c, &e)| near(c, e)),
                    "{level:?} {rows} × {columns} square"
                );
                let expected: f64 = c.iter().map(|c| f64::from(*c).powi(2)).sum();
                assert!((square - expected).abs() < 2e-6 * expected, "{level:?} {rows} × {columns} squares");
            }
        }
        for k in [1usize, 7, 8, 16, 30] {
            for (rows, columns) in [(1, 1), (1, 9), (3, 4), (4, 7), (9, 11)].into_iter().step_by(EVERY.min(3))
            {
                let stride = k.next_multiple_of(SLACK);
                let mut a = numbers.vector(rows * stride);
                a.iter_mut().enumerate().filter(|(i, _)| i % stride >= k).for_each(|(_, a)| *a = 0.0);
                let b = numbers.vector(columns * k + SLACK);
                let dots =
                    Dots { a: &a, a_stride: stride, a_rows: rows, b: &b, b_stride: k, b_rows: columns, k };
                let mut c = vec![0.0; rows * columns];
                dots.store(level, &mut c, columns);
                for (i, found) in c.iter().enumerate() {
                    let (x, y) = (&a[i / columns * stride..][..k], &b[i % columns * k..][..k]);
                    let exact: f64 = x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
                    assert!((f64::from(*found) - exact).abs() < 1e-5, "{level:?} {rows} × {columns} × {k}");
                }
            }
        }
    }
}

#[test]
fn sums_of_squares_keep_their_promised_error() {
    let mut numbers = Numbers(9);
    let x = numbers.vector(100_003 / EVERY_NUMBER);
    let exact: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
    for level in Level::available() {
        assert!((elementwise::square(level, &x) - exact).abs() < 4e-6 * exact);
    }
}
