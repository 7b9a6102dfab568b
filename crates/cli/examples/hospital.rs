//! Made-up tables like a hospital's: numbers in their units, categories, missing values, 5 % positives.
//!
//! `cargo run --example hospital -- DIRECTORY KIND SEED` writes `train.csv` (20,000 rows), `test.csv` (10,000
//! rows of other patients) and `config.toml` with the schema. The ranges are wide, as public knowledge is.
//! `bench/tables.py` and the tests use it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// How a table is made.
pub struct Kind {
    /// Numeric columns.
    pub numbers: usize,
    /// How many of them matter.
    pub informative: usize,
    /// The scale of their coefficients.
    pub strength: f64,
    /// The sizes of the categorical columns.
    pub categories: &'static [usize],
    /// The share of numbers that is missing.
    pub missing: f64,
    /// Common causes behind the numbers.
    pub causes: usize,
    /// The strength of an interaction between the first two numbers, which no linear model sees.
    pub interaction: f64,
}

/// Few columns; many of which most do not matter; many categories; correlated ones; an interaction.
pub const KINDS: [Kind; 5] = [
    Kind {
        numbers: 8,
        informative: 8,
        strength: 0.5,
        categories: &[4, 6],
        missing: 0.05,
        causes: 0,
        interaction: 0.0,
    },
    Kind {
        numbers: 20,
        informative: 6,
        strength: 0.35,
        categories: &[3],
        missing: 0.1,
        causes: 3,
        interaction: 0.0,
    },
    Kind {
        numbers: 5,
        informative: 5,
        strength: 0.6,
        categories: &[10, 20, 8, 5],
        missing: 0.15,
        causes: 0,
        interaction: 0.0,
    },
    Kind {
        numbers: 10,
        informative: 10,
        strength: 0.5,
        categories: &[4, 4, 4],
        missing: 0.1,
        causes: 3,
        interaction: 0.0,
    },
    Kind {
        numbers: 12,
        informative: 12,
        strength: 0.4,
        categories: &[6, 3, 12],
        missing: 0.2,
        causes: 0,
        interaction: 0.6,
    },
];

/// The share of class 1.
const POSITIVES: f64 = 0.05;

/// How a standard normal value is recorded.
type Unit = fn(f64) -> f64;

/// Units of the numbers: how a standard normal value z is recorded, and the public range of the column.
const UNITS: [(Unit, [f64; 2]); 4] = [
    (|z| 50.0 + 18.0 * z, [0.0, 120.0]),
    (|z| (2.0 + 0.6 * z).exp(), [0.0, 500.0]),
    (|z| 27.0 + 5.0 * z, [10.0, 80.0]),
    (|z| 120.0 + 15.0 * z, [50.0, 250.0]),
];

/// A table as text, and for each row the log-odds of class 1 that made its label.
pub struct Table {
    /// The rows with a header.
    pub rows: Vec<String>,
    /// The header.
    pub header: String,
    /// The true log-odds.
    pub odds: Vec<f64>,
    /// The labels.
    pub labels: Vec<bool>,
    /// The schema, for a configuration file.
    pub schema: String,
}

fn normal(rng: &mut ChaCha20Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Makes a table of the given size.
pub fn make(kind: &Kind, seed: u64, count: usize) -> Table {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let rng = &mut rng;
    let weights: Vec<f64> = (0..kind.numbers)
        .map(|i| kind.strength * normal(rng) * f64::from(u8::from(i < kind.informative)))
        .collect();
    let loadings: Vec<Vec<f64>> =
        (0..kind.numbers).map(|_| (0..kind.causes).map(|_| 0.6 * normal(rng)).collect()).collect();
    let columns: Vec<Vec<(f64, f64)>> = kind
        .categories
        .iter()
        .map(|&size| (0..size).map(|_| (0.2 + rng.random::<f64>(), 0.6 * normal(rng))).collect())
        .collect();
    let (mut rows, mut odds) = (Vec::new(), Vec::new());
    for i in 0..count {
        let causes: Vec<f64> = (0..kind.causes).map(|_| normal(rng)).collect();
        let numbers: Vec<f64> = loadings
            .iter()
            .map(|load| normal(rng) + load.iter().zip(&causes).map(|(a, b)| a * b).sum::<f64>())
            .collect();
        let mut score: f64 = numbers.iter().zip(&weights).map(|(x, w)| x * w).sum();
        score += kind.interaction * numbers[0] * numbers[1];
        let mut row = format!("p{i}");
        for (j, z) in numbers.iter().enumerate() {
            match rng.random::<f64>() < kind.missing {
                true => row.push(','),
                false => write!(row, ",{:.3}", UNITS[j % 4].0(*z)).expect("a string takes all"),
            }
        }
        for column in &columns {
            let all: f64 = column.iter().map(|category| category.0).sum();
            let mut at = all * rng.random::<f64>();
            let place = column.iter().position(|category| {
                at -= category.0;
                at < 0.0
            });
            let place = place.unwrap_or(column.len() - 1);
            score += column[place].1;
            write!(row, ",c{place}").expect("a string takes all");
        }
        rows.push(row);
        odds.push(score);
    }
    // The intercept that makes the wanted share of positives.
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        let mean = odds.iter().map(|score| 1.0 / (1.0 + (-score - middle).exp())).sum::<f64>();
        if mean / count as f64 > POSITIVES { high = middle } else { low = middle }
    }
    odds.iter_mut().for_each(|score| *score += low);
    let labels: Vec<bool> =
        odds.iter().map(|score| rng.random::<f64>() < 1.0 / (1.0 + (-score).exp())).collect();
    rows.iter_mut().zip(&labels).for_each(|(row, label)| row.push_str(if *label { ",yes" } else { ",no" }));
    let (header, schema) = described(kind);
    Table { rows, header, odds, labels, schema }
}

/// The header and the schema.
fn described(kind: &Kind) -> (String, String) {
    let mut header = "id".to_string();
    let mut schema =
        "[schema]\nignore = [\"id\"]\n[schema.label]\nname = \"ill\"\ncategories = [\"no\", \"yes\"]\n"
            .to_string();
    for j in 0..kind.numbers {
        let [low, high] = UNITS[j % 4].1;
        write!(header, ",x{j}").expect("a string takes all");
        write!(schema, "[[schema.column]]\nname = \"x{j}\"\nrange = [{low:?}, {high:?}]\n")
            .expect("a string takes all");
    }
    for (j, size) in kind.categories.iter().enumerate() {
        let names: Vec<String> = (0..*size).map(|place| format!("\"c{place}\"")).collect();
        write!(header, ",k{j}").expect("a string takes all");
        write!(schema, "[[schema.column]]\nname = \"k{j}\"\ncategories = [{}]\n", names.join(", "))
            .expect("a string takes all");
    }
    header.push_str(",ill");
    (header, schema)
}

/// Writes the files; returns the log-odds and labels of the test rows.
pub fn write(directory: &Path, kind: &Kind, seed: u64, train: usize, test: usize) -> (Vec<f64>, Vec<bool>) {
    let table = make(kind, seed, train + test);
    let put = |name: &str, text: String| fs::write(directory.join(name), text).expect("a writable directory");
    let csv = |rows: &[String]| format!("{}\n{}\n", table.header, rows.join("\n"));
    put("train.csv", csv(&table.rows[..train]));
    put("test.csv", csv(&table.rows[train..]));
    let path = |name: &str| format!("{:?}", directory.join(name).display().to_string());
    put(
        "config.toml",
        format!("data = {}\ntest = {}\n{}", path("train.csv"), path("test.csv"), table.schema),
    );
    (table.odds[train..].to_vec(), table.labels[train..].to_vec())
}

#[allow(dead_code)]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, kind, seed] = &arguments[..] else {
        panic!("usage: hospital DIRECTORY KIND SEED");
    };
    fs::create_dir_all(directory).expect("a directory");
    let kind = &KINDS[kind.parse::<usize>().expect("a kind from 0 to 4")];
    write(Path::new(directory), kind, seed.parse().expect("a number"), 20_000, 10_000);
}
