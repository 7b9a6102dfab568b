//! A residual network and an inner algorithm of your own, with ledger, resume (run it again) and report.

use std::path::Path;
use std::sync::Arc;

use dpsgd::data::{Dataset, Known, known};
use dpsgd::train::{GroupContext, InnerAlgorithm, ModelError};
use dpsgd::{Evaluation, Job, MeasuredBy, PerSample, RawSettings};

/// Inputs, images shrunk to 7 × 7, and the classes of softmax(W(x + tanh(Vx))).
const D: usize = 49;
const K: usize = 10;

type Sample = ([f32; D], usize);

fn shrunk(set: &Dataset) -> Vec<Sample> {
    let image = |i: usize| {
        let mut pixels = [0.0; 784];
        set.copy_input(i, &mut pixels);
        let pixel = |j: usize, k: usize| pixels[(j / 7 * 4 + k / 4) * 28 + j % 7 * 4 + k % 4];
        let mean = |j: usize| (0..16).map(|k| pixel(j, k)).sum::<f32>() / 16.0;
        (std::array::from_fn(mean), set.label(i).unwrap_or(0) as usize)
    };
    (0..set.len()).map(image).collect()
}

/// Adds the gradient of a sample to `g`; its loss, and whether its class is right.
fn backward(w: &[f32], (x, label): &Sample, g: &mut [f32]) -> (f32, bool) {
    let dot = |row: &[f32], x: &[f32]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
    let t: [f32; D] = std::array::from_fn(|i| dot(&w[i * D..][..D], x).tanh());
    let r: [f32; D] = std::array::from_fn(|i| x[i] + t[i]);
    let mut p: [f32; K] = std::array::from_fn(|k| dot(&w[(D + k) * D..][..D], &r).exp());
    let (sum, right) = (p.iter().sum::<f32>(), p.iter().all(|q| *q <= p[*label]));
    p = p.map(|p| p / sum);
    let loss = -p[*label].ln();
    p[*label] -= 1.0;
    let through = |i: usize| (0..K).map(|k| w[(D + k) * D + i] * p[k]).sum::<f32>() * (1.0 - t[i] * t[i]);
    for (i, row) in g.chunks_mut(D).enumerate() {
        let (delta, input) = if i < D { (through(i), x) } else { (p[i - D], &r) };
        row.iter_mut().zip(input).for_each(|(g, x)| *g += delta * x);
    }
    (loss, right)
}

/// The gradient at the place to which one step down the gradient leads.
#[derive(Debug)]
struct Extragradient;

impl InnerAlgorithm for Extragradient {
    fn name(&self) -> &str {
        "extragradient"
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        group.mean_gradient()?;
        let vectors = group.vectors();
        vectors.weights.iter_mut().zip(vectors.gradient).for_each(|(w, g)| *w -= 0.1 * *g);
        group.mean_gradient_as_result()
    }
}

fn main() -> Result<(), dpsgd::Error> {
    let images = known::load(Known::Mnist, None)?;
    let raw = RawSettings { net: Some("residual".into()), epochs: Some(4), ..Default::default() };
    let settings = raw.resolve()?.with_inner(Arc::new(Extragradient));
    let (train, test) = (shrunk(&images.train), shrunk(&images.test));
    let d = (D + K) * D;
    let model = PerSample::new(d, train.len(), move |w, i, g| Ok(backward(w, &train[i as usize], g).0));
    let measured = MeasuredBy(test.len() as u64, move |w: &[f32]| {
        let seen: Vec<_> = test.iter().map(|sample| backward(w, sample, &mut vec![0.0; d])).collect();
        let mean = |f: fn(&(f32, bool)) -> f64| seen.iter().map(f).sum::<f64>() / seen.len() as f64;
        let (loss, accuracy) = (mean(|s| s.0.into()), Some(mean(|s| s.1.into())));
        Evaluation { loss, accuracy, clipped: f64::NAN, ..Evaluation::default() }
    });
    let weights = (0..d).map(|i| 0.2 * (i as f32 * 1.7).sin()).collect();
    let out = std::env::args().nth(1).unwrap_or("runs/residual".into());
    let job = Job::new(settings, Arc::new(model), weights).tested_by(measured);
    println!("{}", job.start_or_resume(Path::new(&out))?.train(&mut ())?.statement);
    Ok(())
}
