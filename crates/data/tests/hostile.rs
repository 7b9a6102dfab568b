//! Damaged or malicious files: a one-line error, no panic, no memory wasted.

use std::fs;
use std::io::Write;
use std::path::Path;

use dpsgd_data::{DataError, Dataset, Inputs, idx};
use flate2::Compression;
use flate2::write::GzEncoder;

fn header(dimensions: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
    bytes.extend(dimensions.iter().flat_map(|size| size.to_be_bytes()));
    bytes
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<idx::Idx, DataError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, bytes).unwrap();
    idx::read(&path)
}

fn refused(bytes: &[u8]) -> String {
    let error = read(bytes).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn a_good_file_is_read_zipped_or_not() {
    let file = [header(&[2, 1, 3]), vec![1, 2, 3, 4, 5, 6]].concat();
    let expected = idx::Idx { dimensions: vec![2, 1, 3], values: vec![1, 2, 3, 4, 5, 6] };
    assert_eq!(read(&file).unwrap(), expected);
    assert_eq!(read(&zipped(&file)).unwrap(), expected);
}

#[test]
fn every_prefix_is_truncated() {
    let file = [header(&[2, 1, 3]), vec![1, 2, 3, 4, 5, 6]].concat();
    for length in 0..file.len() {
        let error = refused(&file[..length]);
        assert!(
            error.contains(if length < 4 { "not an IDX file" } else { "truncated" }),
            "{length}: {error}"
        );
    }
    let file = zipped(&file);
    for length in 0..file.len() {
        let error = refused(&file[..length]);
        assert!(error.contains(if length < 2 { "not an IDX file" } else { "gzip" }), "{length}: {error}");
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    let file = [header(&[2]), vec![1, 2]].concat();
    assert!(refused(&[&file[..], &[0]].concat()).contains("more than the 10 bytes"));
    assert!(refused(&zipped(&[&file[..], &[0]].concat())).contains("more than the 10 bytes"));
    assert!(refused(&[zipped(&file), b"garbage".to_vec()].concat()).contains("gzip"));
    assert!(refused(&[zipped(&file), zipped(&file)].concat()).contains("more than the 10 bytes"));
}

#[test]
fn a_changed_bit_in_zipped_data_never_changes_what_is_read() {
    let values: Vec<u8> = (0..200).map(|i| (i * i % 251) as u8).collect();
    let file = zipped(&[header(&[200]), values.clone()].concat());
    let mut unnoticed = 0;
    // The first ten bytes are gzip's own header: fields such as time and system may change.
    for bit in 80..8 * file.len() {
        let mut changed = file.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        match read(&changed) {
            Ok(idx) => {
                assert_eq!(idx.values, values);
                unnoticed += 1;
            }
            Err(error) => assert!(error.to_string().contains("gzip"), "{bit}: {error}"),
        }
    }
    // The bits that fill the last byte of the compressed data.
    assert!(unnoticed < 8, "{unnoticed}");
}

#[test]
fn claims_of_the_header_allocate_nothing() {
    // 2³⁰ images of 2¹⁵ × 2¹⁵, and the most four dimensions can say.
    let error = refused(&header(&[1 << 30, 1 << 15, 1 << 15]));
    assert!(error.ends_with(&format!("truncated, 16 bytes of {}", (1_u128 << 60) + 16)), "{error}");
    assert!(refused(&header(&[u32::MAX; 4])).contains("truncated, 20 bytes of "));
    assert!(refused(&zipped(&header(&[1 << 30, 1 << 15, 1 << 15]))).contains("truncated"));
    // Anything times zero is zero.
    let idx = read(&header(&[u32::MAX, u32::MAX, 0])).unwrap();
    let labels = idx::Idx { dimensions: vec![u32::MAX as usize], values: vec![] };
    let pair = |idx| (Path::new("file").to_path_buf(), idx);
    assert!(idx::dataset(pair(idx), pair(labels), 10).is_err());
}

#[test]
fn other_types_and_other_files_are_refused() {
    for file in [
        &b"\x89PNG\r\n\x1a\n"[..],
        b"PK\x03\x04",
        b"",
        &[0, 0, 13, 1, 0, 0, 0, 0],
        &[0, 0, 8, 0],
        &[0, 0, 8, 5],
    ] {
        assert!(refused(file).contains("not an IDX file of unsigned bytes"));
    }
    let missing = idx::read(Path::new("no/such/file")).unwrap_err().to_string();
    assert!(missing.starts_with("no/such/file: "), "{missing}");
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(idx::read(directory.path()), Err(DataError::Io { .. })));
}

#[test]
fn images_and_labels_must_belong_together() {
    let idx = |dimensions: &[usize], value: u8| {
        let values = vec![value; dimensions.iter().product()];
        (Path::new("file").to_path_buf(), idx::Idx { dimensions: dimensions.to_vec(), values })
    };
    let refused = |images, labels| idx::dataset(images, labels, 10).unwrap_err().to_string();
    assert!(refused(idx(&[3, 2, 2], 0), idx(&[2], 0)).contains("2 labels for 3 images"));
    assert!(refused(idx(&[3, 2], 0), idx(&[3], 0)).contains("2 dimensions, images have 3 or 4"));
    assert!(refused(idx(&[3, 2, 2], 0), idx(&[3, 1], 0)).contains("2 dimensions, labels have 1"));
    assert!(refused(idx(&[3, 2, 2], 0), idx(&[3], 10)).contains("label = 10: below 10"));
    assert!(refused(idx(&[0, 2, 2], 0), idx(&[0], 0)).contains("at least 1"));
    let colour: Dataset = idx::dataset(idx(&[3, 2, 2, 3], 7), idx(&[3], 9), 10).unwrap();
    assert_eq!((colour.shape(), colour.inputs()), ([2, 2, 3], &Inputs::Bytes(vec![7; 36])));
}

#[test]
fn a_directory_of_idx_files_without_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| fs::write(directory.path().join(name), bytes).unwrap();
    write("train-images-idx3-ubyte", [header(&[2, 1, 1]), vec![0, 255]].concat());
    write("train-labels-idx1-ubyte.gz", zipped(&[header(&[2]), vec![2, 0]].concat()));
    write("t10k-images-idx3-ubyte.gz", zipped(&[header(&[1, 1, 1]), vec![9]].concat()));
    write("t10k-labels-idx1-ubyte", [header(&[1]), vec![1]].concat());
    let split = idx::load(directory.path(), 3).unwrap();
    assert_eq!((split.train.len(), split.test.len(), split.train.label(0)), (2, 1, Some(2)));
    assert!(idx::load(directory.path(), 2).unwrap_err().to_string().contains("label = 2: below 2"));
    write("t10k-images-idx3-ubyte.gz", zipped(&[header(&[1, 1, 2]), vec![9, 9]].concat()));
    assert!(
        idx::load(directory.path(), 3).unwrap_err().to_string().contains("training images are [1, 1, 1]")
    );
}
