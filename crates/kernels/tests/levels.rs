//! Every level gives the same bits, and no operands can make a product read or write beyond its slices.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{EVERY, Numbers};
use dpsgd_kernels::dots::Dots;
use dpsgd_kernels::elementwise::{self, Windows};
use dpsgd_kernels::multiply::{Places, Product, Walk};
use dpsgd_kernels::{Level, fourier, gaussian, scatter};

/// The results of a computation at every level, as bits, must all be the same.
fn same(what: &str, run: impl Fn(Level) -> Vec<u64>) {
    let portable = run(Level::Portable);
    for level in Level::available() {
        assert!(run(level) == portable, "{what} at {}", level.name());
    }
}

fn bits(x: &[f32]) -> Vec<u64> {
    x.iter().map(|x| u64::from(x.to_bits())).collect()
}

#[test]
fn elementwise_loops_give_the_same_bits() {
    type InPlace = fn(Level, &mut [f32]);
    type WithOther = fn(Level, &[f32], &mut [f32]);
    let in_place: [InPlace; 5] =
        [elementwise::tanh, elementwise::sigmoid, elementwise::relu, elementwise::silu, elementwise::gelu];
    let with_other: [WithOther; 6] = [
        elementwise::tanh_backward,
        elementwise::sigmoid_backward,
        elementwise::relu_backward,
        elementwise::silu_backward,
        elementwise::gelu_backward,
        elementwise::add,
    ];
    for n in [1, 7, 16, 33, 1500 / EVERY.pow(2)] {
        let mut numbers = Numbers(n as u64);
        let mut vector = || numbers.vector(n).into_iter().map(|x| 4.0 * x).collect::<Vec<f32>>();
        let (x, y) = (vector(), vector());
        let changed = |f: &dyn Fn(&mut [f32])| {
            let mut d = y.clone();
            f(&mut d);
            bits(&d)
        };
        for f in in_place {
            same("in place", |level| changed(&|d| f(level, d)));
        }
        for f in with_other {
            same("with another", |level| changed(&|d| f(level, &x, d)));
        }
        same("leaky_relu", |level| changed(&|d| elementwise::leaky_relu(level, 0.1, d)));
        same("elu", |level| changed(&|d| elementwise::elu(level, 0.7, d)));
        same("leaky_relu_backward", |level| {
            changed(&|d| elementwise::leaky_relu_backward(level, 0.1, &x, d))
        });
        same("elu_backward", |level| changed(&|d| elementwise::elu_backward(level, 0.7, &x, d)));
        same("sum", |level| changed(&|d| elementwise::sum(level, &x, &y, d)));
        same("add_scaled", |level| changed(&|d| elementwise::add_scaled(level, 0.3, &x, d)));
        same("scale", |level| changed(&|d| elementwise::scale(level, 0.3, d)));
        same("square", |level| vec![elementwise::square(level, &x).to_bits()]);
        same("add_columns", |level| changed(&|d| elementwise::add_columns(level, &x, n, n, 1, d)));
        same("outer", |level| {
            let mut out = vec![0.0; 3 * n];
            elementwise::outer(level, &x[..1].repeat(3), &y, &mut out);
            bits(&out)
        });
    }
}

#[test]
fn pooling_gives_the_same_bits() {
    let windows = Windows { height: 2, width: 2, step: 2, pitch: 24, channels: 3 };
    let mut numbers = Numbers(4);
    let (x, d) = (numbers.vector(48), numbers.vector(12));
    same("add_windows", |level| {
        let (mut row, mut out) = (vec![0.0; 24], vec![0.0; 12]);
        elementwise::add_windows(level, &x, windows, 0.25, &mut row, &mut out);
        bits(&out)
    });
    same("spread_windows", |level| {
        let mut x = x.clone();
        elementwise::spread_windows(level, &d, windows, 0.25, &mut x);
        elementwise::fill_windows(level, &d[..6], windows, 0.3, &mut x);
        bits(&x)
    });
}

#[test]
fn noise_and_wavelets_give_the_same_bits() {
    let mut numbers = Numbers(8);
    let mut word = || (numbers.unit() * 65536.0) as u32 * 65536 + (numbers.unit() * 65536.0) as u32;
    let words: Vec<u32> = (0..4 * 1000).map(|_| word()).collect();
    same("standard_normal", |level| {
        let mut out = vec![0.0; 2000];
        gaussian::standard_normal(level, &words[..3000], &mut out);
        bits(&out)
    });
    // Levels may decide different numbers, but never decide one differently.
    for (deviation, most) in [(0.7, 0), (2e6, 2), (5e10, 40), (1e12, 700)] {
        let drawn = |level| {
            let mut out = vec![0.0; 2000];
            let undecided = gaussian::rounded_normal(level, &words, deviation, &mut out);
            let count = out.iter().filter(|x| x.is_nan()).count();
            assert!(undecided == (count > 0) && count <= most, "{count} undecided, {deviation}");
            out
        };
        let portable = drawn(Level::Portable);
        for level in Level::available() {
            for (one, other) in drawn(level).iter().zip(&portable) {
                assert!(one == other || one.is_nan() || other.is_nan(), "{one} {other} at {}", level.name());
            }
        }
    }
    for side in [36, 40, 14, 22].into_iter().skip(EVERY.min(4) / 2) {
        let plane = planes(&mut numbers, side * side);
        same("fourier::transform", |level| {
            let (line, mut plane) = (fourier::Line::new(side, false), plane.clone());
            fourier::transform(level, &line, &line, &mut plane);
            bits(plane.as_flattened().as_flattened())
        });
        let weights = numbers.vector(side * side);
        same("folded, modulus, means", |level| {
            let mut half = vec![fourier::ZERO; side * side / 4];
            scatter::folded(level, &plane, &weights, [side, side], &mut half);
            let mut modulus = vec![[0.0; fourier::LANES]; half.len()];
            scatter::modulus(level, &half, &mut modulus);
            let (rows, mut means) = (&weights[..side], vec![[0.0; fourier::LANES]; 4]);
            scatter::means(level, &modulus, [side / 2, side / 2], rows, rows, &mut means);
            let all = [half.as_flattened(), &modulus, &means].concat();
            bits(all.as_flattened())
        });
        same("product, apart", |level| {
            let mut out = [(); 3].map(|()| vec![fourier::ZERO; side * side]);
            let [product, first, second] = &mut out;
            scatter::product(level, &plane, &weights, product);
            scatter::apart(level, product, [side, side], first, second);
            bits(out.concat().as_flattened().as_flattened())
        });
    }
}

fn planes(numbers: &mut Numbers, length: usize) -> Vec<fourier::Complex> {
    (0..length).map(|_| [(); 2].map(|()| numbers.vector(fourier::LANES).try_into().unwrap())).collect()
}

/// The transform is its definition, in every lane; and there and back it is the length times what it was.
#[test]
fn a_fourier_transform_is_its_definition() {
    for [height, width] in [[36, 40], [18, 20], [1, 7], [22, 3], [8, 9]].into_iter().skip(EVERY.min(3) - 1) {
        let plane = planes(&mut Numbers(height as u64), height * width);
        let mut done = plane.clone();
        let lines = |backwards| [width, height].map(|n| fourier::Line::new(n, backwards));
        let [rows, columns] = lines(false);
        assert_eq!((rows.len(), rows.is_empty()), (width, false));
        fourier::transform(Level::best(), &rows, &columns, &mut done);
        for at in [0, 1, height * width / 2, height * width - 1] {
            let (ky, kx) = (at / width, at % width);
            for lane in [0, 9] {
                let (mut re, mut im) = (0.0, 0.0);
                for (i, number) in plane.iter().enumerate() {
                    let turn =
                        (ky * (i / width)) as f64 / height as f64 + (kx * (i % width)) as f64 / width as f64;
                    let (sine, cosine) = (-std::f64::consts::TAU * turn).sin_cos();
                    let [x, y] = [0, 1].map(|part| f64::from(number[part][lane]));
                    (re, im) = (re + x * cosine - y * sine, im + x * sine + y * cosine);
                }
                let [ours_re, ours_im] = [0, 1].map(|part| f64::from(done[at][part][lane]));
                // About 1e-7 of the root of the number of terms, each of size 1.
                assert!(
                    (ours_re - re).abs() < 2e-5 && (ours_im - im).abs() < 2e-5,
                    "{height} × {width}, {at}"
                );
            }
        }
        let [rows, columns] = lines(true);
        fourier::transform(Level::best(), &rows, &columns, &mut done);
        for (back, number) in
            done.as_flattened().as_flattened().iter().zip(plane.as_flattened().as_flattened())
        {
            assert!((back / (height * width) as f32 - number).abs() < 1e-5);
        }
    }
}

#[test]
fn products_beyond_their_slices_are_refused() {
    let places = [0, 8];
    for level in Level::available() {
        let (a, b) = (vec![1.0; 64], vec![1.0; 8 * level.panel()]);
        let fits = Product {
            a: &a,
            rows: Places::new(&places),
            b: &b,
            panel: level.panel(),
            walk: Walk::line(2, 1, 1),
            columns: 8,
        };
        let runs = |product: Product, c: usize| {
            let mut c = vec![0.0; c];
            catch_unwind(AssertUnwindSafe(|| product.store(level, None, &mut c, Places::new(&places))))
                .is_ok()
        };
        assert!(runs(fits, 16));
        assert!(!runs(fits, 15), "C is too short");
        assert!(!runs(Product { a: &a[..9], ..fits }, 16), "A is too short");
        assert!(!runs(Product { b: &b[..7], ..fits }, 16), "B is too short");
        // Strides whose product would wrap around to a small number.
        let half = usize::MAX / 2 + 1;
        for stride in [usize::MAX, half] {
            let walk = Walk { outer: 3, inner: 1, a: [stride, 1], b: [1, 1] };
            assert!(!runs(Product { walk, ..fits }, 16), "a wrapped stride in A");
            let walk = Walk { outer: 3, inner: 1, a: [1, 1], b: [stride, 1] };
            assert!(!runs(Product { walk, ..fits }, 16), "a wrapped stride in B");
            let columns = level.panel() + 1;
            assert!(!runs(Product { panel: stride, columns, ..fits }, 1000), "a wrapped panel");
        }
        // Panels on top of each other: the last one needs less of B than the one before it.
        let b = vec![1.0; level.lanes() + 1];
        let columns = level.panel() + 1;
        assert!(!runs(Product { b: &b, panel: 0, columns, ..fits }, 1000), "the panel before the last");

        let dots = Dots { a: &a, a_stride: 16, a_rows: 3, b: &a, b_stride: 16, b_rows: 2, k: 5 };
        let runs = |dots: Dots, c: usize, stride: usize| {
            let mut c = vec![0.0; c];
            catch_unwind(AssertUnwindSafe(|| dots.store(level, &mut c, stride))).is_ok()
        };
        assert!(runs(dots, 6, 2));
        assert!(!runs(dots, 5, 2) && !runs(dots, 6, half), "C is too short");
        assert!(!runs(Dots { a_stride: half, ..dots }, 6, 2) && !runs(Dots { a_rows: 9, ..dots }, 99, 2));
        assert!(
            !runs(Dots { b_stride: usize::MAX, ..dots }, 6, 2) && !runs(Dots { k: usize::MAX, ..dots }, 6, 2)
        );
    }
}
