//! What the model of a run says about new samples.

use std::fmt::Write;
use std::path::Path;

use dpsgd_data::file::Public;
use dpsgd_data::schema::{CategorySource, RangeSource, Schema};
use dpsgd_data::{Dataset, Inputs, Known, Targets, adult, cifar, idx, table};
use serde_json::{Value, json};

use crate::settings::{Settings, Source};
use crate::{Error, SavedRun};

/// What the model of a run says about new samples.
#[derive(Clone, Debug)]
pub struct Predictions {
    /// The names of the classes; none where the model predicts a value.
    pub classes: Option<Vec<String>>,
    /// For each sample: class probabilities, or the value in the units of the column.
    pub rows: Vec<Vec<f64>>,
    /// The name of what is predicted.
    pub label: String,
    /// The files of the samples, where each is one.
    pub files: Option<Vec<String>>,
}

impl SavedRun {
    /// Predicts for the samples of a file: a table with the columns of the schema, the label not needed;
    /// arrays; images, in a folder or in the format of the data set of the run.
    ///
    /// Predicting is post-processing of the released model and costs no privacy of the training data.
    pub fn predict_file(&self, file: &Path, threads: usize) -> Result<Predictions, Error> {
        self.predict_file_at(1.0, file, threads)
    }

    /// [`predict_file`](Self::predict_file) with the scores divided by a [temperature](Self::temperature).
    pub fn predict_file_at(
        &self,
        temperature: f64,
        file: &Path,
        threads: usize,
    ) -> Result<Predictions, Error> {
        let settings = self.settings()?;
        let (samples, files) = unlabelled(&settings, file)?;
        let scores = self.predict_at(temperature, samples, threads)?;
        let schema = schema_of(&settings);
        let spread = |row: Vec<f32>| -> Vec<f64> {
            match row[..] {
                // One output of a logistic loss is the probability of class 1.
                [one] if self.is_logistic(&settings) => vec![1.0 - f64::from(one), f64::from(one)],
                _ => row.into_iter().map(f64::from).collect(),
            }
        };
        let mut rows: Vec<Vec<f64>> = scores.into_iter().map(spread).collect();
        let label = schema.as_ref().map_or("label", |schema| &schema.label.name).to_string();
        let classes = match schema.as_ref().map(|schema| (&schema.label.categories, schema.label.range)) {
            Some((Some(CategorySource::Public(names)), _)) => Some(names.clone()),
            Some((_, Some(RangeSource::Public([low, high])))) => {
                rows.iter_mut().flatten().for_each(|value| *value = low + *value * (high - low));
                None
            }
            _ if !settings.data.declared.classes.is_empty() => Some(settings.data.declared.classes.clone()),
            _ => rows.first().map(|row| (0..row.len()).map(|class| class.to_string()).collect()),
        };
        Ok(Predictions { classes, rows, label, files })
    }

    fn is_logistic(&self, settings: &Settings) -> bool {
        use dpsgd_engine::spec::Loss;
        settings.net.spec.as_ref().is_some_and(|spec| spec.loss == Loss::Logistic)
    }
}

/// The schema of a table; none for images.
pub(crate) fn schema_of(settings: &Settings) -> Option<Schema> {
    match settings.data.source {
        Source::Known(Known::Adult) => Some(adult::schema()),
        _ => settings.data.schema.clone(),
    }
}

/// Refuses a schema that was completed from the training file, which is not here.
fn covered(schema: Schema) -> Result<Schema, Error> {
    match schema.uncovered()[..] {
        [] => Ok(schema),
        ref columns => Err(Error::Refused(format!(
            "schema: the categories or ranges of {} were taken from the training file (from-data) and are not \
             in the run; write them into the schema and train again",
            columns.join(", ")
        ))),
    }
}

/// The samples of a file without their labels.
fn unlabelled(settings: &Settings, file: &Path) -> Result<(Dataset, Option<Vec<String>>), Error> {
    if let Some(schema) = schema_of(settings) {
        return Ok((table::load_inputs(file, &covered(schema)?)?, None));
    }
    let dataset = |shape: [usize; 3], values: Vec<u8>, classes: usize| {
        let labels = vec![0; values.len() / shape.iter().product::<usize>().max(1)];
        Dataset::new(Inputs::Bytes(values), Targets::Classes { labels, classes }, shape)
    };
    match settings.data.source {
        Source::Known(Known::Cifar10) => {
            let bytes = std::fs::read(file).map_err(Error::io(file))?;
            let mut batches = cifar::Batches::default();
            batches.add(file, &bytes)?;
            Ok((batches.dataset()?, None))
        }
        Source::Known(_) => {
            let images = idx::read(file)?;
            match images.dimensions[..] {
                [_, height, width] => Ok((dataset([height, width, 1], images.values, 10)?, None)),
                _ => Err(Error::Refused(format!(
                    "{}: not a file of images (samples, height, width)",
                    file.display()
                ))),
            }
        }
        Source::Other(_) if !settings.data.declared.classes.is_empty() => {
            Ok(Public { schema: None, declared: &settings.data.declared }.load_inputs(file)?)
        }
        Source::Other(_) => Err(Error::Refused(
            "the run has no schema, so its samples cannot be read from a file; predict in the program that \
             trained it"
                .into(),
        )),
    }
}

/// The labelled samples of a file, or of the test set of the run.
pub(crate) fn labelled(settings: &Settings, file: Option<&Path>) -> Result<Dataset, Error> {
    let data = &settings.data;
    match (&data.source, schema_of(settings), file.or(data.test.as_deref())) {
        (Source::Known(known), _, None) => Ok(dpsgd_data::load(*known, data.directory.as_deref())?.test),
        (Source::Other(train), Some(schema), Some(file)) if !schema.uncovered().is_empty() => {
            // What the training file decided is nowhere else.
            let test = table::TestRows::File(file.to_owned());
            Ok(table::load(Path::new(train), &test, &schema)?.test)
        }
        (_, Some(schema), Some(file)) => Ok(table::load_one(file, &schema)?),
        (Source::Other(_), None, Some(file)) if !data.declared.classes.is_empty() => {
            Ok(Public { schema: None, declared: &data.declared }.load_one(file)?)
        }
        (_, None, Some(_)) => Err(Error::Refused(
            "test: only for data of your own; this data set is measured on its own test set".into(),
        )),
        (Source::Other(_), _, None) => Err(Error::Refused(
            "test: the run has no public test set; give samples in the same format as --test".into(),
        )),
    }
}

impl Predictions {
    /// One line for each sample: the prediction, then the probability of each class.
    pub fn csv(&self) -> String {
        let first = if self.files.is_some() { "file" } else { "row" };
        let mut text = format!("{first},{}", quoted(&self.label));
        for name in self.classes.iter().flatten() {
            let _ = write!(text, ",{}", quoted(&format!("p({name})")));
        }
        text.push('\n');
        for (i, row) in self.rows.iter().enumerate() {
            let file = self.files.as_ref().and_then(|files| files.get(i)).map(|file| quoted(file));
            let name = file.unwrap_or_else(|| (i + 1).to_string());
            let _ = write!(text, "{name},{}", quoted(&self.said(row)));
            for probability in row.iter().filter(|_| self.classes.is_some()) {
                let _ = write!(text, ",{probability:.6}");
            }
            text.push('\n');
        }
        text
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let predicted: Vec<String> = self.rows.iter().map(|row| self.said(row)).collect();
        match &self.classes {
            Some(classes) => {
                let mut value =
                    json!({ "classes": classes, "predicted": predicted, "probabilities": self.rows });
                if let Some(files) = &self.files {
                    value["files"] = json!(files);
                }
                value
            }
            None => json!({ "values": self.rows.iter().map(|row| row[0]).collect::<Vec<_>>() }),
        }
    }

    /// The most probable class, or the value.
    fn said(&self, row: &[f64]) -> String {
        match &self.classes {
            Some(classes) => {
                let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |best| best.0);
                classes.get(best).cloned().unwrap_or_default()
            }
            None => format!("{}", row.first().copied().unwrap_or(f64::NAN)),
        }
    }
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
