//! Who has which samples.

use std::fmt;
use std::str::FromStr;

use dpsgd::Error;
use dpsgd::data::Dataset;
use dpsgd::train::Stream;

use super::splitting;

/// Divisions that are tried before a Dirichlet split is given up.
const TRIES: usize = 100;

/// How samples are divided among clients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Split {
    /// At random, in equal parts.
    #[default]
    Iid,
    /// Each class is divided by a draw from the symmetric Dirichlet distribution (Hsu, Qi, Brown 2019): the smaller
    /// α, the fewer classes a client has. Drawn again until every client can fill a batch.
    Dirichlet(f64),
    /// Sorted by class and cut into equal parts: most clients have one class.
    ByLabel,
}

/// A split that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("split = {0}: iid, by-label or dirichlet:ALPHA with an alpha above 0, at most 1000")]
pub struct NotASplit(String);

impl FromStr for Split {
    type Err = NotASplit;

    fn from_str(text: &str) -> Result<Self, NotASplit> {
        match (text, text.strip_prefix("dirichlet:").map(str::parse)) {
            ("iid", _) => Ok(Split::Iid),
            ("by-label", _) => Ok(Split::ByLabel),
            (_, Some(Ok(alpha))) if alpha > 0.0 && alpha <= 1000.0 => Ok(Split::Dirichlet(alpha)),
            _ => Err(NotASplit(text.to_owned())),
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Split::Iid => f.write_str("iid"),
            Split::Dirichlet(alpha) => write!(f, "dirichlet:{alpha}"),
            Split::ByLabel => f.write_str("by-label"),
        }
    }
}

impl Split {
    /// The samples of each client; every sample belongs to exactly one, and each has at least `least`.
    pub(super) fn divide(
        self,
        data: &Dataset,
        clients: u64,
        least: u64,
        seed: u64,
    ) -> Result<Vec<Vec<u32>>, Error> {
        let mut stream = splitting(seed);
        let clients = clients as usize;
        if clients == 1 {
            // As a centralised run has them.
            return Ok(vec![(0..data.len() as u32).collect()]);
        }
        let order = shuffled(data.len() as u32, &mut stream);
        let enough = |parts: &[Vec<u32>]| parts.iter().all(|part| part.len() as u64 >= least.max(1));
        match self {
            Split::Iid => Ok(cut(&order, clients)),
            Split::ByLabel => {
                let mut order = order;
                order.sort_by_key(|&i| data.label(i as usize));
                Ok(cut(&order, clients))
            }
            Split::Dirichlet(alpha) => {
                for _ in 0..TRIES {
                    let parts = dirichlet(data, &order, clients, alpha, &mut stream);
                    if enough(&parts) {
                        return Ok(parts);
                    }
                }
                Err(Error::Refused(format!(
                    "split = {self}: in {TRIES} draws some client had fewer than the {least} samples of a round; \
                     take a larger alpha, fewer clients, or fewer --groups"
                )))
            }
        }
    }
}

fn shuffled(samples: u32, stream: &mut Stream) -> Vec<u32> {
    let mut order: Vec<u32> = (0..samples).collect();
    for first in 0..samples {
        order.swap(first as usize, (first + stream.below(samples - first)) as usize);
    }
    order
}

fn cut(order: &[u32], clients: usize) -> Vec<Vec<u32>> {
    let end = |client: usize| (order.len() as u128 * client as u128 / clients as u128) as usize;
    (0..clients).map(|client| order[end(client)..end(client + 1)].to_vec()).collect()
}

fn dirichlet(
    data: &Dataset,
    order: &[u32],
    clients: usize,
    alpha: f64,
    stream: &mut Stream,
) -> Vec<Vec<u32>> {
    let classes = data.classes().unwrap_or(1);
    let mut by_class = vec![Vec::new(); classes];
    for &i in order {
        by_class[data.label(i as usize).unwrap_or(0) as usize].push(i);
    }
    let mut parts = vec![Vec::new(); clients];
    for members in by_class {
        let shares: Vec<f64> = (0..clients).map(|_| gamma(alpha, stream)).collect();
        let total: f64 = shares.iter().sum();
        let (mut upto, mut start) = (0.0, 0);
        for (part, share) in parts.iter_mut().zip(&shares) {
            upto += share / total;
            let end = ((upto * members.len() as f64).round() as usize).clamp(start, members.len());
            part.extend_from_slice(&members[start..end]);
            start = end;
        }
        // What rounding left over goes to the last.
        if let Some(last) = parts.last_mut() {
            last.extend_from_slice(&members[start..]);
        }
    }
    parts
}

/// Gamma with shape α and scale 1 (Marsaglia and Tsang 2000, with their trick for α < 1).
fn gamma(alpha: f64, stream: &mut Stream) -> f64 {
    if alpha < 1.0 {
        let unit = 1.0 - stream.unit();
        return gamma(alpha + 1.0, stream) * unit.powf(1.0 / alpha);
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (radius, angle) = (1.0 - stream.unit(), stream.unit());
        let x = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let v = (1.0 + c * x).powi(3);
        let unit = 1.0 - stream.unit();
        if v > 0.0 && unit.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use dpsgd::data::{Inputs, Targets};

    use super::*;

    fn data() -> Dataset {
        let labels = (0..3000).map(|i| i % 10).collect();
        let inputs = Inputs::Floats(vec![0.0; 3000]);
        Dataset::new(inputs, Targets::Classes { labels, classes: 10 }, [1, 1, 1]).unwrap()
    }

    #[test]
    fn every_sample_belongs_to_exactly_one_client() {
        let data = data();
        for split in [Split::Iid, Split::ByLabel, Split::Dirichlet(0.3), Split::Dirichlet(100.0)] {
            for clients in [1, 2, 7] {
                let parts = split.divide(&data, clients, 5, 3).unwrap();
                assert_eq!(parts.len() as u64, clients);
                let mut all: Vec<u32> = parts.concat();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..3000), "{split} {clients}");
                assert_eq!(parts, split.divide(&data, clients, 5, 3).unwrap());
            }
        }
        assert!(Split::Dirichlet(0.01).divide(&data, 50, 50, 3).is_err());
    }

    #[test]
    fn a_small_alpha_makes_clients_differ() {
        let data = data();
        let spread = |split: Split| {
            let parts = split.divide(&data, 10, 1, 3).unwrap();
            let largest = |part: &Vec<u32>| {
                let mut counts = [0u32; 10];
                part.iter().for_each(|&i| counts[data.label(i as usize).unwrap() as usize] += 1);
                f64::from(*counts.iter().max().unwrap()) / part.len() as f64
            };
            parts.iter().map(largest).sum::<f64>() / 10.0
        };
        let found = [Split::Iid, Split::Dirichlet(0.3), Split::ByLabel].map(spread);
        assert!(found[0] < 0.2 && found[0] < found[1] && found[1] < found[2], "{found:?}");
    }

    #[test]
    fn splits_are_read_as_they_are_written() {
        for text in ["iid", "by-label", "dirichlet:0.3"] {
            assert_eq!(text.parse::<Split>().unwrap().to_string(), text);
        }
        for wrong in ["", "dirichlet", "dirichlet:", "dirichlet:0", "dirichlet:NaN", "even"] {
            assert!(wrong.parse::<Split>().is_err(), "{wrong}");
        }
    }
}
