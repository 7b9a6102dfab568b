//! Tables with everything people put into CSV files.

use std::fs;
use std::path::PathBuf;

use dpsgd_data::schema::{CategorySource, Column, RangeSource, Schema, Unlisted};
use dpsgd_data::table::{self, TestRows};
use dpsgd_data::{DataError, Dataset, Split, Targets};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

fn schema() -> Schema {
    let mut schema = Schema::new(
        Column::categorical("label", &["no", "yes"]),
        vec![
            Column::numeric("age", 0.0, 50.0),
            Column::categorical("job", &["cook", "nurse, night", "say \"a\""]),
        ],
    );
    schema.ignore = vec!["id".to_string()];
    schema
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

fn load(text: impl AsRef<[u8]>, schema: &Schema) -> Result<Split, DataError> {
    let files = Files::new();
    let path = files.write("file.csv", text);
    // The test file is the same, so that all rows can be inspected.
    table::load(&path, &TestRows::File(path.clone()), schema)
}

fn refused(text: impl AsRef<[u8]>, schema: &Schema) -> String {
    let error = load(text, schema).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn rows(set: &Dataset) -> Vec<Vec<f32>> {
    let row = |index| {
        let mut row = vec![0.0; set.input_len()];
        set.copy_input(index, &mut row);
        row
    };
    (0..set.len()).map(row).collect()
}

const GOOD: &str =
    "id,job,age,label\n1,cook,25,no\n2,\"nurse, night\",?,yes\n3,\"say \"\"a\"\"\",1e3,no\n4,?,-7.5,yes\n";

#[test]
fn quotes_missing_values_ranges_and_the_order_of_columns() {
    let expected = [[0.5, 1., 0., 0.], [0.5, 0., 1., 0.], [1.0, 0., 0., 1.], [0.0, 0., 0., 0.]];
    // As written; from Windows, with a mark at the start, blanks around fields and blank lines.
    let other = GOOD.replace('\n', "\r\n").replace("25", " 25\t").replace("\r\n2", "\r\n\r\n2");
    for text in [GOOD.as_bytes().to_vec(), [b"\xef\xbb\xbf", other.as_bytes()].concat()] {
        let set = load(text, &schema()).unwrap().train;
        assert_eq!(rows(&set), expected);
        assert_eq!(set.targets(), &Targets::Classes { labels: vec![0, 1, 0, 1], classes: 2 });
        assert_eq!((set.shape(), set.numeric()), ([1, 1, 4], &[true, false, false, false][..]));
    }
    let mut semicolons = schema();
    semicolons.delimiter = ';';
    let set = load("label;age;job;id\nyes;50;cook;9", &semicolons).unwrap().train;
    assert_eq!(rows(&set), [[1.0, 1.0, 0.0, 0.0]]);
}

#[test]
fn a_row_becomes_the_same_numbers_whatever_the_others_hold() {
    let lines: Vec<&str> = GOOD.lines().collect();
    let all = rows(&load(GOOD, &schema()).unwrap().train);
    for (line, row) in lines[1..].iter().zip(&all) {
        let alone = load(format!("{}\n{line}\n", lines[0]), &schema()).unwrap().train;
        assert_eq!(&rows(&alone)[0], row);
    }
}

#[test]
fn what_the_schema_does_not_allow_is_refused_with_its_line() {
    let schema = schema();
    let line = |row: &str| refused(format!("id,job,age,label\n1,cook,1,no\n{row}\n"), &schema);
    assert!(
        line("2,pilot,30,no").contains("line 3: job: \"pilot\" is not in the list of categories; add it")
    );
    assert!(line("2,cook,old,no").contains("line 3: age: \"old\" is not a number"));
    for value in ["NaN", "inf", "1e999"] {
        assert!(line(&format!("2,cook,{value},no")).contains("is not a number"));
    }
    assert!(line("2,cook,30,maybe").contains("label: \"maybe\" is not in the list"));
    assert!(line("2,cook,30,?").contains("the label is missing"));
    assert!(line("2,cook,30").contains("line 3: 3 fields, 4 columns"));
    assert!(line("2,\"cook,30,no\n3,cook,1,no").contains("line 3: 2 fields, 4 columns"));
    assert!(refused(b"id,job,age,label\n1,\xff,1,no\n", &schema).contains("line 2: not UTF-8"));

    assert!(refused("", &schema).contains("no column \"age\""));
    assert!(refused("id,job,age,label\n", &schema).contains("no rows"));
    assert!(
        refused("id,job,label\n1,cook,no\n", &schema)
            .contains("no column \"age\"; the first line must be a header")
    );
    assert!(
        refused("id,job,age,age,label\n1,cook,1,1,no\n", &schema).contains("two columns are named \"age\"")
    );
    assert!(
        refused("id,job,age,zip,label\n1,cook,1,1,no\n", &schema).contains("column \"zip\" has no meaning")
    );
}

#[test]
fn lines_are_counted_in_files_from_windows_too() {
    let schema = schema();
    let text = "id,job,age,label\n1,cook,1,no\n\n2,cook,old,no\n3,cook,2,no\n";
    for bom in ["", "\u{feff}"] {
        for end in ["\n", "\r\n"] {
            let text = format!("{bom}{}", text.replace('\n', end));
            let error = refused(&text, &schema);
            assert!(error.contains("line 4: age: \"old\" is not a number"), "{end:?}: {error}");
            let error = refused(text.replace("old", "7").replace("3,cook", "3"), &schema);
            assert!(error.contains("line 5: 3 fields, 4 columns"), "{end:?}: {error}");
        }
    }
}

#[test]
fn unlisted_categories_can_count_as_missing_but_not_as_a_label() {
    let mut schema = schema();
    schema.unlisted = Unlisted::Zero;
    let set = load("id,job,age,label\n1,pilot,10,no\n", &schema).unwrap().train;
    assert_eq!(rows(&set), [[0.2, 0.0, 0.0, 0.0]]);
    assert!(refused("id,job,age,label\n1,cook,10,maybe\n", &schema).contains("not in the list"));
}

#[test]
fn wrong_schemas_are_refused() {
    let changed = |change: fn(&mut Schema)| {
        let mut schema = schema();
        change(&mut schema);
        refused(GOOD, &schema)
    };
    assert!(changed(|s| s.columns[0] = Column::numeric("age", 5.0, 5.0)).contains("a finite low below"));
    assert!(changed(|s| s.columns[0] = Column::numeric("age", f64::NAN, 5.0)).contains("a finite low below"));
    assert!(
        changed(|s| s.columns[0] = Column::numeric("age", f64::MIN, f64::MAX)).contains("a finite low below")
    );
    assert!(changed(|s| s.columns[1] = Column::categorical("job", &[])).contains("at least one category"));
    assert!(changed(|s| s.columns[1] = Column::categorical("job", &["a", "a "])).contains("none twice"));
    assert!(changed(|s| s.columns[1].categories = None).contains("neither range nor categories"));
    assert!(changed(|s| s.columns[1].range = Some(RangeSource::FromData)).contains("range and categories"));
    assert!(changed(|s| s.columns[1].name = "age".to_string()).contains("listed once"));
    assert!(changed(|s| s.ignore.push("label".to_string())).contains("listed once"));
    assert!(changed(|s| s.columns.clear()).contains("at least one"));
    for delimiter in ['"', '\n', '→'] {
        let mut schema = schema();
        schema.delimiter = delimiter;
        assert!(refused(GOOD, &schema).starts_with("delimiter = "));
    }
}

#[test]
fn test_rows_by_a_public_rule() {
    let files = Files::new();
    let text: String = (0..10).map(|i| format!("{i},cook,{i},no\n")).collect();
    let path = files.write("ten.csv", format!("id,job,age,label\n{text}"));
    let ages = |set: &Dataset| rows(set).iter().map(|row| (row[0] * 50.0).round() as u32).collect::<Vec<_>>();
    let parts = |rule| {
        let split = table::load(&path, &rule, &schema()).unwrap();
        (ages(&split.train), ages(&split.test))
    };
    assert_eq!(parts(TestRows::Last(0.25)), (vec![0, 1, 2, 3, 4, 5, 6, 7], vec![8, 9]));
    assert_eq!(parts(TestRows::Last(0.01)), ((0..9).collect(), vec![9]));
    assert_eq!(parts(TestRows::Every(4)), (vec![0, 1, 2, 4, 5, 6, 8, 9], vec![3, 7]));
    for rule in [TestRows::Last(0.0), TestRows::Last(1.0), TestRows::Last(f64::NAN), TestRows::Every(1)] {
        assert!(
            table::load(&path, &rule, &schema()).unwrap_err().to_string().contains("both sets need samples")
        );
    }
    assert!(
        table::load(&path, &TestRows::Every(11), &schema())
            .unwrap_err()
            .to_string()
            .contains("0 for testing")
    );
    let one = files.write("one.csv", "id,job,age,label\n1,cook,1,no\n");
    assert!(
        table::load(&one, &TestRows::Last(0.5), &schema())
            .unwrap_err()
            .to_string()
            .contains("0 for training")
    );
}

#[test]
fn regression_targets_are_clipped_to_their_public_range() {
    let schema = Schema::new(Column::numeric("price", 100.0, 300.0), vec![Column::numeric("size", 0.0, 1.0)]);
    let set = load("size,price\n0.25,150\n1,1000\n0,?\n".replace("0,?\n", ""), &schema).unwrap().train;
    assert_eq!(set.targets(), &Targets::Values(vec![0.25, 1.0]));
    assert_eq!((set.classes(), set.value(1), set.label(1)), (None, Some(1.0), None));
    assert!(refused("size,price\n0.25,?\n", &schema).contains("the label is missing"));
}

#[test]
fn what_comes_from_the_data_is_named_as_not_covered() {
    let mut schema = schema();
    assert!(schema.uncovered().is_empty());
    schema.columns[0].range = Some(RangeSource::FromData);
    schema.columns[1].categories = Some(CategorySource::FromData);
    assert_eq!(schema.uncovered(), ["age", "job"]);
    let files = Files::new();
    let train = files.write("train.csv", "id,job,age,label\n1,b,20,no\n2,a,40,yes\n3,?,?,no\n");
    let test = files.write("test.csv", "label,job,id,age\nyes,b,9,90\n");
    let split = table::load(&train, &TestRows::File(test), &schema).unwrap();
    assert_eq!(rows(&split.train), [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.5, 0.0, 0.0]]);
    assert_eq!(rows(&split.test), [[1.0, 0.0, 1.0]]);
    // A single value has no range.
    assert!(refused("id,job,age,label\n1,a,3,no\n", &schema).contains("a finite low below"));
    assert!(refused("id,job,age,label\n1,a,?,no\n", &schema).contains("a finite low below"));
}

#[test]
fn a_schema_is_written_and_read_back() {
    let mut schema = schema();
    schema.columns[0].range = Some(RangeSource::FromData);
    schema.columns.push(Column {
        name: "town".to_string(),
        range: None,
        categories: Some(CategorySource::FromData),
    });
    let text = toml::to_string(&schema).unwrap();
    assert_eq!(toml::from_str::<Schema>(&text).unwrap(), schema, "{text}");
    let wrong = "[label]\nname = 'x'\nrange = [0, 1]\nkind = 'y'\n";
    assert!(toml::from_str::<Schema>(wrong).unwrap_err().to_string().contains("kind"));
    assert!(toml::from_str::<Schema>("[label]\nname = 'x'\nrange = 'all'\n").is_err());
}

#[test]
fn mangled_files_are_read_or_refused_but_do_no_harm() {
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut public = schema();
    public.unlisted = Unlisted::Zero;
    let mut inferred = schema();
    inferred.columns[0].range = Some(RangeSource::FromData);
    inferred.label.categories = Some(CategorySource::FromData);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..1000 {
        let mut text = GOOD.as_bytes().to_vec();
        for _ in 0..rng.random_range(1..4) {
            let place = rng.random_range(0..text.len());
            match rng.random_range(0..3) {
                0 => text[place] = rng.random(),
                1 => drop(text.remove(place)),
                _ => text.insert(place, b"\",\n?\r9e"[rng.random_range(0..7)]),
            }
        }
        for schema in [&public, &inferred] {
            match load(&text, schema) {
                Ok(split) => {
                    read += 1;
                    assert!(rows(&split.train).iter().flatten().all(|value| (0.0..=1.0).contains(value)));
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.to_string().lines().count(), 1, "{error}");
                }
            }
        }
    }
    // Both outcomes are common, so both are tested.
    assert!(read > 100 && refused > 100, "{read} {refused}");
}
