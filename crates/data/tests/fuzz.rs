//! Every reader of data against almost valid files: a one-line error, or data that keep every promise of
//! their type. Inputs that once failed are kept at the end as tests.

mod mutate;

use std::fs;
use std::io::Write;
use std::path::Path;

use dpsgd_data::cifar::Batches;
use dpsgd_data::schema::Schema;
use dpsgd_data::table::{self, TestRows};
use dpsgd_data::{DataError, Dataset, Targets, adult, idx};
use flate2::Compression;
use flate2::write::GzEncoder;
use mutate::{changed, changed_text, config};
use proptest::prelude::*;

/// One line, and a short one: of a field as long as half a file only the beginning is shown.
fn refusal(error: &DataError) -> Result<(), TestCaseError> {
    let text = error.to_string();
    prop_assert!(text.lines().count() == 1 && text.len() < 5000, "{text:?}");
    Ok(())
}

/// Everything that training relies on.
fn sound(set: &Dataset, within: std::ops::RangeInclusive<f32>) -> Result<(), TestCaseError> {
    prop_assert!(!set.is_empty() && set.input_len() > 0 && set.numeric().len() == set.shape()[2]);
    let mut input = vec![0.0; set.input_len()];
    for index in 0..set.len() {
        set.copy_input(index, &mut input);
        prop_assert!(input.iter().all(|value| within.contains(value)), "{index}: {input:?}");
    }
    match set.targets() {
        Targets::Classes { labels, classes } => {
            prop_assert!(
                labels.len() == set.len() && labels.iter().all(|label| (*label as usize) < *classes)
            );
        }
        Targets::Values(values) => prop_assert!(values.iter().all(|value| within.contains(value))),
    }
    Ok(())
}

/// Removed first: some systems wait for the disk when a file is emptied and written again.
fn written(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn idx_file(dimensions: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
    bytes.extend(dimensions.iter().flat_map(|size| size.to_be_bytes()));
    [&bytes, values].concat()
}

fn idx_files() -> Vec<Vec<u8>> {
    let plain = [
        idx_file(&[3, 2, 2], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255]),
        idx_file(&[2, 1, 2, 3], &[9; 12]),
        idx_file(&[3], &[0, 9, 4]),
    ];
    plain.iter().flat_map(|file| [file.clone(), zipped(file)]).collect()
}

fn cifar_file() -> Vec<u8> {
    let record = |label: u8| std::iter::once(label).chain((0..3072).map(move |i| (i * 7 + 3) as u8));
    record(0).chain(record(9)).collect()
}

const SCHEMA: &str = "delimiter = \",\"\nunlisted = \"zero\"\nignore = [\"id\"]\nmissing = [\"\", \"?\"]\n\
    [label]\nname = \"income\"\ncategories = [\"low\", \"high\"]\n\
    [[column]]\nname = \"age\"\nrange = [-10, 1e2]\n\
    [[column]]\nname = \"job\"\ncategories = [\"cook\", \"nurse, night\"]\n\
    [[column]]\nname = \"sex\"\ncategories = \"from-data\"\n\
    [[column]]\nname = \"height\"\nrange = \"from-data\"\n";
const REGRESSION: &str =
    "[label]\nname = \"age\"\nrange = [0, 100]\n[[column]]\nname = \"height\"\nrange = [0.5, 2.5]\n";
const TABLE: &str = "id,job,age,sex,height,income\n1,cook,25,m,1.70,low\n2,\"nurse, night\",?,f,1.8,high\n\
    3,\"say \"\"a\"\"\",1e3,f,,low\n\n4,?,-7.5,d,1.6,high\n";
const NUMBERS: &str = "age,height\n1,2\n100,1.5\n3.25,0.5\n";
const ADULT: &str = "|1x3 Cross validator\n\
    25, Private, 226802, 11th, 7, Never-married, Machine-op-inspct, Own-child, Black, Male, \
    0, 0, 40, United-States, <=50K.\n\
    50, ?, 83311, Bachelors, 13, Married-civ-spouse, ?, Husband, White, Male, 99999, 0, 13, Hong, >50K\n\n";

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn idx_is_refused_or_whole(images in changed(idx_files()), labels in changed(idx_files())) {
        let read = |name: &str, bytes: &[u8]| {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            written(&path, bytes);
            idx::read(&path).map(|idx| (path, idx))
        };
        let found = (read("fuzz-images", &images), read("fuzz-labels", &labels));
        for idx in [&found.0, &found.1] {
            match idx {
                Ok((_, idx)) => prop_assert_eq!(idx.dimensions.iter().product::<usize>(), idx.values.len()),
                Err(error) => refusal(error)?,
            }
        }
        if let (Ok(images), Ok(labels)) = found {
            match idx::dataset(images, labels, 10) {
                Ok(set) => sound(&set, 0.0..=1.0)?,
                Err(error) => refusal(&error)?,
            }
        }
    }

    #[test]
    fn cifar_is_refused_or_whole(bytes in changed(vec![cifar_file()])) {
        let mut batches = Batches::default();
        match batches.add(Path::new("batch.bin"), &bytes) {
            Ok(()) => {
                let set = batches.dataset().unwrap();
                prop_assert_eq!(set.len() * 3073, bytes.len());
                sound(&set, 0.0..=1.0)?;
            }
            Err(error) => refusal(&error)?,
        }
    }

    #[test]
    fn a_table_is_refused_or_between_zero_and_one(
        table in changed_text(vec![TABLE.into(), NUMBERS.into()]),
        schema in prop_oneof![
            Just(SCHEMA.to_string()),
            Just(REGRESSION.to_string()),
            changed_text(vec![SCHEMA.into(), REGRESSION.into()]),
        ],
        test in 0..4_usize,
    ) {
        let Ok(schema) = toml::from_str::<Schema>(&schema) else { return Ok(()) };
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-table.csv");
        // Zipped, it is the same table.
        written(&path, &if test == 3 { zipped(table.as_bytes()) } else { table.into_bytes() });
        let rows = [
            TestRows::File(path.clone()),
            TestRows::Last(0.3),
            TestRows::Every(2),
            TestRows::File(path.clone()),
        ];
        match table::load(&path, &rows[test], &schema) {
            Ok(split) => {
                sound(&split.train, 0.0..=1.0)?;
                sound(&split.test, 0.0..=1.0)?;
            }
            Err(error) => refusal(&error)?,
        }
    }

    #[test]
    fn adult_is_refused_or_between_zero_and_one(bytes in changed(vec![ADULT.into()])) {
        match adult::parse(Path::new("adult.data"), &bytes) {
            Ok(set) => {
                prop_assert_eq!((set.shape(), set.classes()), ([1, 1, 105], Some(2)));
                sound(&set, 0.0..=1.0)?;
            }
            Err(error) => refusal(&error)?,
        }
    }
}
