//! Files that NumPy, PyArrow and Pillow wrote, and damaged ones.
//!
//! `tests/files` was written by numpy 2.4, pyarrow 26 and Pillow 13: `images` is 10·(0, 1, …, 23) as bytes of
//! shape (4, 2, 3), `channels-first` is (0, 1, …, 47)/10 − 1 of shape (4, 3, 2, 2), `fortran` the same with
//! the channel last in Fortran order as big-endian doubles.

mod mutate;

use std::fs;
use std::path::{Path, PathBuf};

use dpsgd_data::file::{Format, Public};
use dpsgd_data::schema::{Column, Schema};
use dpsgd_data::{Dataset, Declared, Inputs, Targets, arrays, folder, npy, table};
use mutate::{changed, config};
use proptest::prelude::*;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

fn declared(classes: &[&str], size: Option<&str>, range: Option<[f64; 2]>) -> Declared {
    Declared {
        classes: classes.iter().map(ToString::to_string).collect(),
        size: size.map(|size| size.parse().unwrap()),
        range,
        channels_first: false,
    }
}

const ABC: [&str; 3] = ["a", "b", "c"];

fn labels(set: &Dataset) -> Vec<u32> {
    (0..set.len()).map(|i| set.label(i).unwrap()).collect()
}

fn served(set: &Dataset, index: usize) -> Vec<f32> {
    let mut out = vec![0.0; set.input_len()];
    set.copy_input(index, &mut out);
    out
}

#[test]
fn bytes_of_numpy_with_labels_beside_or_inside() {
    let public = declared(&ABC, None, None);
    let beside = arrays::load(&file("images.npy"), &public).unwrap();
    assert_eq!(beside, arrays::load(&file("plain.npz"), &public).unwrap());
    assert_eq!((beside.len(), beside.shape(), labels(&beside)), (4, [2, 3, 1], vec![0, 1, 2, 1]));
    let Inputs::Bytes(bytes) = beside.inputs() else { panic!("bytes stay bytes") };
    assert_eq!(bytes[..], (0..24).map(|i| 10 * i).collect::<Vec<u8>>()[..]);
    let unlabelled = arrays::load_inputs(&file("images.npy"), &public).unwrap();
    assert_eq!(unlabelled.inputs(), beside.inputs());
}

#[test]
fn layouts_orders_and_types_mean_the_same_images() {
    let range = Some([-1.0, 4.0]);
    let first = Declared { channels_first: true, ..declared(&ABC, None, range) };
    let a = arrays::load(&file("channels-first.npz"), &first).unwrap();
    let b = arrays::load(&file("fortran.npz"), &declared(&ABC, None, range)).unwrap();
    assert_eq!((a.shape(), labels(&a)), ([2, 2, 3], vec![0, 1, 2, 1]));
    assert_eq!(labels(&a), labels(&b));
    for i in 0..4 {
        let (a, b) = (served(&a, i), served(&b, i));
        for (place, (a, b)) in a.iter().zip(&b).enumerate() {
            let (pixel, channel) = (place / 3, place % 3);
            let expected = (12 * i + 4 * channel + pixel) as f32 / 50.0;
            assert!((a - expected).abs() < 1e-6 && (b - expected).abs() < 1e-6, "{a} {b} {expected}");
        }
    }
    // A value outside of the public range counts as its nearer end.
    let narrow = arrays::load(&file("fortran.npz"), &declared(&ABC, None, Some([0.0, 1.0]))).unwrap();
    assert_eq!((served(&narrow, 0)[0], served(&narrow, 3)[0]), (0.0, 1.0));
}

#[test]
fn what_is_not_declared_is_asked_for_and_what_is_wrong_is_named() {
    let refused = |name: &str, public: &Declared| arrays::load(&file(name), public).unwrap_err().to_string();
    let text = refused("fortran.npz", &declared(&ABC, None, None));
    for part in ["value-range", "array x", "dtype >f8", "shape (4, 2, 2, 3)", "private"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(refused("plain.npz", &declared(&[], None, None)).contains("--classes"));
    let text = refused("plain.npz", &declared(&["a", "b"], None, None));
    assert!(
        text.contains("array y") && text.contains("label 2 is 2") && text.contains("2 classes"),
        "{text}"
    );
    let first = Declared { channels_first: true, ..declared(&ABC, None, None) };
    assert!(refused("plain.npz", &first).contains("four dimensions"));
    assert!(refused("plain.npz", &declared(&ABC, None, Some([1.0, 1.0]))).contains("value-range"));
    let directory = tempfile::tempdir().unwrap();
    let alone = directory.path().join("alone.npy");
    fs::copy(file("images.npy"), &alone).unwrap();
    let text = arrays::load(&alone, &declared(&ABC, None, None)).unwrap_err().to_string();
    assert!(text.contains("alone.labels.npy"), "{text}");
    let misnamed = directory.path().join("people.npz");
    fs::copy(file("table.npz"), &misnamed).unwrap();
    // Three rows of labels for an array of another length.
    fs::copy(file("images.npy"), directory.path().join("alone.labels.npy")).unwrap();
    let text = arrays::load(&alone, &declared(&ABC, None, None)).unwrap_err().to_string();
    assert!(text.contains("must be (4,)"), "{text}");
}

fn people(columns: Vec<Column>) -> Schema {
    Schema::new(Column::categorical("income", &["low", "high"]), columns)
}

#[test]
fn parquet_means_what_csv_means() {
    let schema = people(vec![
        Column::numeric("age", 0.0, 100.0),
        Column::numeric("height", 1.0, 2.0),
        Column::categorical("job", &["nurse", "smith, black", "cook"]),
        Column::categorical("smokes", &["true", "false"]),
    ]);
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("people.csv");
    let rows = "age,height,job,smokes,income\n30,1.75,nurse,true,low\n,,\" smith, black\",false,high\n61,1.5,nurse,,high\n";
    fs::write(&csv, rows).unwrap();
    let expected = table::load_one(&csv, &schema).unwrap();
    for name in ["people-snappy.parquet", "people-zstd.parquet", "people-gzip.parquet"] {
        assert_eq!(table::load_one(&file(name), &schema).unwrap(), expected, "{name}");
        assert_eq!(Format::of(&file(name)), Format::Table);
    }
    let without = people(vec![Column::numeric("age", 0.0, 100.0)]);
    let text = table::load_one(&file("people-snappy.parquet"), &without).unwrap_err().to_string();
    assert!(text.contains("\"height\" has no meaning"), "{text}");
    let inputs = table::load_inputs(&file("people-snappy.parquet"), &without).unwrap();
    assert_eq!(inputs.len(), 3);
    let narrow = people(vec![
        Column::numeric("age", 0.0, 100.0),
        Column::numeric("height", 1.0, 2.0),
        Column::categorical("job", &["nurse", "cook"]),
        Column::categorical("smokes", &["true", "false"]),
    ]);
    let text = table::load_one(&file("people-zstd.parquet"), &narrow).unwrap_err().to_string();
    assert!(text.contains("people-zstd.parquet: row 2: job: \"smith, black\""), "{text}");
    let text = table::load_one(&file("nested.parquet"), &without).unwrap_err().to_string();
    assert!(text.contains("\"tags\" is nested"), "{text}");
}

#[test]
fn columns_of_an_array_are_those_of_the_schema() {
    let schema = Schema::new(
        Column::categorical("ill", &["0", "1"]),
        vec![Column::numeric("age", 0.0, 100.0), Column::categorical("ward", &["0", "1", "2"])],
    );
    let set = table::load_one(&file("table.npz"), &schema).unwrap();
    assert_eq!((set.len(), set.shape(), labels(&set)), (3, [1, 1, 4], vec![0, 1, 1]));
    assert_eq!(served(&set, 0), [0.3, 1.0, 0.0, 0.0]);
    // NaN is a missing age: the middle of the range.
    assert_eq!(served(&set, 1), [0.5, 0.0, 1.0, 0.0]);
    let short = Schema { columns: vec![Column::numeric("age", 0.0, 100.0)], ..schema };
    let text = table::load_one(&file("table.npz"), &short).unwrap_err().to_string();
    assert!(text.contains("shape (3, 2)") && text.contains("(N, 1)"), "{text}");
}

/// Lays out photos/red/halves.png and so on.
fn photos() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (class, name) in
        [("red", "halves.png"), ("blue", "halves.jpg"), ("blue", "alpha.png"), ("red", "grey.png")]
    {
        let place = directory.path().join(class);
        fs::create_dir_all(&place).unwrap();
        fs::copy(file(name), place.join(name)).unwrap();
    }
    fs::write(directory.path().join("red/.DS_Store"), b"").unwrap();
    directory
}

#[test]
fn a_folder_has_a_class_in_each_subfolder() {
    let photos = photos();
    let public = declared(&["red", "green", "blue"], Some("4x6"), None);
    let found = folder::load(photos.path(), &public).unwrap();
    assert_eq!(found.names, ["blue/alpha.png", "blue/halves.jpg", "red/grey.png", "red/halves.png"]);
    assert_eq!((labels(&found.dataset), found.dataset.shape()), (vec![2, 2, 0, 0], [4, 6, 3]));
    assert_eq!(found.dataset.classes(), Some(3), "a class without images is a class");
    // The left half is red, the right half blue; alpha is dropped, and JPEG is close.
    for (i, tolerance) in [(0, 0.0), (3, 0.0), (1, 0.25)] {
        let pixels = served(&found.dataset, i);
        // Where the halves meet, JPEG mixes their colours.
        for (place, pixel) in pixels.chunks(3).enumerate().filter(|(place, _)| ![2, 3].contains(&(place % 6)))
        {
            let expected = if place % 6 < 3 { [1.0, 0.0, 0.0] } else { [0.0, 0.0, 1.0] };
            let far = pixel.iter().zip(expected).any(|(x, y)| (x - y).abs() > tolerance);
            assert!(!far, "image {i}, pixel {place}: {pixel:?}");
        }
    }
    let again = folder::load_inputs(photos.path(), &public).unwrap();
    assert_eq!((again.names, again.dataset.inputs()), (found.names, found.dataset.inputs()));
    let grey = declared(&["red", "blue"], Some("2x2x1"), None);
    let one = folder::load_inputs(&file("grey.png"), &grey).unwrap();
    assert_eq!(one.dataset.inputs(), &Inputs::Bytes(vec![0, 128, 255, 7]));
}

#[test]
fn photographs_are_turned_as_their_camera_says() {
    let public = declared(&["a", "b"], Some("4x6"), None);
    let pixels = served(&folder::load_inputs(&file("turned.jpg"), &public).unwrap().dataset, 0);
    assert!(pixels[2] > 0.8 && pixels[0] < 0.2, "the left is blue now: {:?}", &pixels[..3]);
}

#[test]
fn folders_that_are_not_as_declared_are_refused() {
    let photos = photos();
    let refused = |public: &Declared| folder::load(photos.path(), public).unwrap_err().to_string();
    assert!(refused(&declared(&["red", "blue"], None, None)).contains("image-size"));
    let text = refused(&declared(&[], Some("4x6"), None));
    assert!(text.contains("--classes blue,red"), "{text}");
    assert!(refused(&declared(&["red", "green"], Some("4x6"), None)).contains("\"blue\""));
    fs::write(photos.path().join("red/notes.txt"), "x").unwrap();
    assert!(refused(&declared(&["red", "blue"], Some("4x6"), None)).contains("notes.txt"));
    fs::remove_file(photos.path().join("red/notes.txt")).unwrap();
    fs::write(photos.path().join("red/cut.png"), &fs::read(file("halves.png")).unwrap()[..60]).unwrap();
    let text = refused(&declared(&["red", "blue"], Some("4x6"), None));
    assert!(text.contains("cut.png") && text.contains("not a whole PNG or JPEG"), "{text}");
}

#[test]
fn training_and_test_sets_have_one_shape() {
    let small = declared(&ABC, None, Some([-1.0, 4.0]));
    let public = Public { schema: None, declared: &small };
    let (train, test) = public.load(&file("fortran.npz"), Some(&file("fortran.npz"))).unwrap();
    assert_eq!(Some(&train), test.as_ref());
    assert!(matches!(train.targets(), Targets::Classes { classes: 3, .. }));
    let text = public.load(&file("fortran.npz"), Some(&file("plain.npz"))).unwrap_err().to_string();
    assert!(text.contains("[2, 2, 3]") && text.contains("[2, 3, 1]"), "{text}");
    let text = public.load(Path::new("model.pt"), None).unwrap_err().to_string();
    assert!(text.contains(".pt files are not read"), "{text}");
}

fn one_line(text: &str) -> Result<(), TestCaseError> {
    prop_assert!(text.lines().count() == 1 && text.len() < 5000, "{text:?}");
    Ok(())
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn arrays_are_refused_or_whole(bytes in changed(
        ["images.npy", "images.labels.npy"].map(|name| fs::read(file(name)).unwrap()).to_vec()
    )) {
        match npy::parse(Path::new("a.npy"), "x", &bytes) {
            Ok(array) => prop_assert_eq!(array.shape.iter().product::<usize>(), array.numbers.len()),
            Err(error) => one_line(&error.to_string())?,
        }
    }

    #[test]
    fn archives_are_refused_or_whole(bytes in changed(
        ["plain.npz", "fortran.npz", "table.npz"].map(|name| fs::read(file(name)).unwrap()).to_vec()
    )) {
        match npy::archive(Path::new("a.npz"), bytes, &[&["x"], &["y", "labels"]]) {
            Ok(found) => prop_assert_eq!(found.len(), 2),
            Err(error) => one_line(&error.to_string())?,
        }
    }

    #[test]
    fn images_are_refused_or_whole(bytes in changed(
        ["halves.png", "grey.png", "alpha.png", "halves.jpg", "turned.jpg"]
            .map(|name| fs::read(file(name)).unwrap())
            .to_vec()
    )) {
        match folder::decode(Path::new("a.png"), &bytes, "5x7".parse().unwrap()) {
            Ok(pixels) => prop_assert_eq!(pixels.len(), 5 * 7 * 3),
            Err(error) => one_line(&error.to_string())?,
        }
    }

    #[test]
    fn parquet_is_refused_or_between_zero_and_one(bytes in changed(
        ["people-snappy.parquet", "people-zstd.parquet", "people-gzip.parquet"]
            .map(|name| fs::read(file(name)).unwrap())
            .to_vec()
    )) {
        let schema = people(vec![Column::numeric("age", 0.0, 100.0), Column::numeric("height", 1.0, 2.0)]);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("changed.parquet");
        let _ = fs::remove_file(&path);
        fs::write(&path, &bytes).unwrap();
        match table::load_inputs(&path, &schema) {
            Ok(set) => for i in 0..set.len() {
                prop_assert!(served(&set, i).iter().all(|x| (0.0..=1.0).contains(x)));
            },
            Err(error) => one_line(&error.to_string())?,
        }
    }
}
