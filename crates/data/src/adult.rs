//! Adult (Becker and Kohavi, 1996): whether a person in the 1994 census earns more than $50,000.
//!
//! The categories are those of the published `adult.names`, in its order. The ranges are round numbers
//! around what the census asks for (`capital-gain` is recorded up to 99,999), not the values that occur.

use std::path::Path;

use crate::dataset::Dataset;
use crate::error::DataError;
use crate::schema::{Column, Plan, Schema};
use crate::source::{Quirks, Source};
use crate::table;

/// The columns in the order of the files, which have no header.
const NAMES: [&str; 15] = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
];

/// What the columns of Adult mean: 6 numeric and 8 categorical ones, 105 features, two classes.
pub fn schema() -> Schema {
    let categorical = Column::categorical;
    Schema::new(
        categorical("income", &["<=50K", ">50K"]),
        vec![
            Column::numeric("age", 0.0, 100.0),
            categorical(
                "workclass",
                &[
                    "Private",
                    "Self-emp-not-inc",
                    "Self-emp-inc",
                    "Federal-gov",
                    "Local-gov",
                    "State-gov",
                    "Without-pay",
                    "Never-worked",
                ],
            ),
            Column::numeric("fnlwgt", 0.0, 1_500_000.0),
            categorical(
                "education",
                &[
                    "Bachelors",
                    "Some-college",
                    "11th",
                    "HS-grad",
                    "Prof-school",
                    "Assoc-acdm",
                    "Assoc-voc",
                    "9th",
                    "7th-8th",
                    "12th",
                    "Masters",
                    "1st-4th",
                    "10th",
                    "Doctorate",
                    "5th-6th",
                    "Preschool",
                ],
            ),
            Column::numeric("education-num", 0.0, 20.0),
            categorical(
                "marital-status",
                &[
                    "Married-civ-spouse",
                    "Divorced",
                    "Never-married",
                    "Separated",
                    "Widowed",
                    "Married-spouse-absent",
                    "Married-AF-spouse",
                ],
            ),
            categorical(
                "occupation",
                &[
                    "Tech-support",
                    "Craft-repair",
                    "Other-service",
                    "Sales",
                    "Exec-managerial",
                    "Prof-specialty",
                    "Handlers-cleaners",
                    "Machine-op-inspct",
                    "Adm-clerical",
                    "Farming-fishing",
                    "Transport-moving",
                    "Priv-house-serv",
                    "Protective-serv",
                    "Armed-Forces",
                ],
            ),
            categorical(
                "relationship",
                &["Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"],
            ),
            categorical("race", &["White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"]),
            categorical("sex", &["Female", "Male"]),
            Column::numeric("capital-gain", 0.0, 100_000.0),
            Column::numeric("capital-loss", 0.0, 5_000.0),
            Column::numeric("hours-per-week", 0.0, 100.0),
            categorical(
                "native-country",
                &[
                    "United-States",
                    "Cambodia",
                    "England",
                    "Puerto-Rico",
                    "Canada",
                    "Germany",
                    "Outlying-US(Guam-USVI-etc)",
                    "India",
                    "Japan",
                    "Greece",
                    "South",
                    "China",
                    "Cuba",
                    "Iran",
                    "Honduras",
                    "Philippines",
                    "Italy",
                    "Poland",
                    "Jamaica",
                    "Vietnam",
                    "Mexico",
                    "Portugal",
                    "Ireland",
                    "France",
                    "Dominican-Republic",
                    "Laos",
                    "Ecuador",
                    "Taiwan",
                    "Haiti",
                    "Columbia",
                    "Hungary",
                    "Guatemala",
                    "Nicaragua",
                    "Scotland",
                    "Thailand",
                    "Yugoslavia",
                    "El-Salvador",
                    "Trinadad&Tobago",
                    "Peru",
                    "Hong",
                    "Holand-Netherlands",
                ],
            ),
        ],
    )
}

/// Reads `adult.data` or `adult.test`. Neither has a header; the second starts with the line
/// `|1x3 Cross validator`, and its labels end in a full stop.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Dataset, DataError> {
    let plan = Plan::of(&schema())?;
    let quirks = Quirks { names: Some(&NAMES), comment: Some(b'|'), label_stop: true };
    table::read(&Source { path, bytes: Some(bytes), quirks }, &schema(), &plan)?.dataset(&plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "|1x3 Cross validator\n\
        25, Private, 226802, 11th, 7, Never-married, Machine-op-inspct, Own-child, Black, Male, 0, 0, 40, \
        United-States, <=50K.\n\
        50, ?, 83311, Bachelors, 13, Married-civ-spouse, ?, Husband, White, Male, 99999, 0, 13, Hong, \
        >50K\n\n";

    #[test]
    fn both_files_are_read_with_their_quirks() {
        let set = parse(Path::new("adult.test"), ROWS.as_bytes()).unwrap();
        assert_eq!((set.len(), set.shape(), set.classes()), (2, [1, 1, 105], Some(2)));
        assert_eq!((set.label(0), set.label(1)), (Some(0), Some(1)));
        assert_eq!(set.numeric().iter().filter(|numeric| **numeric).count(), 6);
        let mut row = vec![0.0; 105];
        set.copy_input(0, &mut row);
        // age, then workclass = Private, the first of its list.
        assert_eq!(row[..3], [0.25, 1.0, 0.0]);
        // Six numbers and eight ones.
        assert_eq!(row.iter().filter(|value| **value == 1.0).count(), 8);
        set.copy_input(1, &mut row);
        assert_eq!(row[1..9], [0.0; 8], "a missing category is none of the list");
        assert_eq!(row.iter().filter(|value| **value == 1.0).count(), 6);
    }

    #[test]
    fn a_short_row_is_refused_with_its_line() {
        let error = parse(Path::new("a"), b"25, Private\n").err().unwrap().to_string();
        assert_eq!(error, "a, line 1: 2 fields, 15 columns");
    }
}
