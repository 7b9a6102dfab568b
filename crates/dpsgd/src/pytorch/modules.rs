//! The network of a run as PyTorch modules, with the names under which its parameters are saved.

use std::fmt::Write;

use dpsgd_engine::Network;
use dpsgd_engine::spec::{LayerSpec, Size};

/// The classes that the layers need beyond `torch.nn`, and `net`.
pub(super) fn net(network: &Network) -> String {
    let mut writer = Writer { network, classes: Vec::new(), flat: network.spec().input[..2] == [1, 1] };
    let mut layers = String::new();
    for (i, layer) in network.spec().layers.iter().enumerate() {
        let _ = writeln!(layers, "    {},", writer.module(&i.to_string(), layer));
    }
    let mut text = String::new();
    for class in writer.classes {
        let _ = writeln!(text, "\n{class}");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let _ = writeln!(text, "net = nn.Sequential(\n{layers})");
    text
}

const RESIDUAL: &str = r#"class Residual(nn.Module):
    """What the layers give plus what they were given."""

    def __init__(self, *layers, skip=None):
        super().__init__()
        self.body = nn.Sequential(*layers)
        self.skip = skip or nn.Identity()

    def forward(self, x):
        return self.body(x) + self.skip(x)
"#;

const EMBEDDING: &str = r#"class Embedding(nn.Module):
    """The categories of a row, each as a vector; numbers pass unchanged."""

    def __init__(self, columns, features):
        super().__init__()
        self.columns = columns
        self.tables = nn.ModuleDict({str(i): nn.Embedding(n, features) for i, n in enumerate(columns) if n > 1})

    def forward(self, x):
        parts = enumerate(x.split(self.columns, 1))
        return torch.cat([p if p.shape[1] == 1 else p @ self.tables[str(i)].weight for i, p in parts], 1)
"#;

const ATTENTION: &str = r#"class Attention(nn.MultiheadAttention):
    """Self-attention between the pixels of an image."""

    def forward(self, x):
        y = x.flatten(2).transpose(1, 2)
        y, _ = super().forward(y, y, y, need_weights=False)
        return y.transpose(1, 2).reshape(x.shape)
"#;

const LINEAR: &str = r#"class Linear(nn.Linear):
    """Of an image of one pixel."""

    def forward(self, x):
        return super().forward(x.flatten(1))
"#;

struct Writer<'n> {
    network: &'n Network,
    /// The classes that are needed, once each.
    classes: Vec<&'static str>,
    /// Whether the input of the next layer is a vector in PyTorch, not an image.
    flat: bool,
}

impl Writer<'_> {
    fn class(&mut self, class: &'static str) {
        if !self.classes.contains(&class) {
            self.classes.push(class);
        }
    }

    /// The shape of a parameter; empty if there is none.
    fn shape(&self, name: &str) -> Vec<usize> {
        let found = self.network.parameters().iter().find(|parameter| parameter.name == name);
        found.map(|parameter| parameter.shape.clone()).unwrap_or_default()
    }

    /// The call that makes the layer whose parameters' names begin with `name`.
    fn module(&mut self, name: &str, layer: &LayerSpec) -> String {
        let weight = self.shape(&format!("{name}.weight"));
        let [channels, inputs] = [0, 1].map(|axis| weight.get(axis).copied().unwrap_or(0));
        let dimensions = if self.flat { "1d" } else { "2d" };
        match layer {
            LayerSpec::Conv2d { channels, kernel, padding, stride, bias } => format!(
                "nn.Conv2d({inputs}, {channels}, {}, stride={stride}, padding={padding}, bias={})",
                pair(*kernel),
                python(*bias)
            ),
            LayerSpec::Linear { features, bias } => {
                if !self.flat {
                    self.class(LINEAR);
                }
                let module = if self.flat { "nn.Linear" } else { "Linear" };
                self.flat = true;
                format!("{module}({inputs}, {features}, bias={})", python(*bias))
            }
            LayerSpec::AveragePool { kernel, stride } => pooled("AvgPool2d", *kernel, *stride),
            LayerSpec::MaxPool { kernel, stride } => pooled("MaxPool2d", *kernel, *stride),
            LayerSpec::GlobalAveragePool => "nn.AdaptiveAvgPool2d(1)".to_string(),
            LayerSpec::Relu => "nn.ReLU()".to_string(),
            LayerSpec::Tanh => "nn.Tanh()".to_string(),
            LayerSpec::Sigmoid => "nn.Sigmoid()".to_string(),
            LayerSpec::LeakyRelu { slope } => format!("nn.LeakyReLU({slope:?})"),
            LayerSpec::Elu { alpha } => format!("nn.ELU({alpha:?})"),
            LayerSpec::Gelu => "nn.GELU(approximate=\"tanh\")".to_string(),
            LayerSpec::Silu => "nn.SiLU()".to_string(),
            LayerSpec::Dropout { rate } => format!("nn.Dropout({rate:?})"),
            LayerSpec::BatchNorm => {
                format!("nn.BatchNorm{dimensions}({channels}, track_running_stats=False)")
            }
            // Of an image of one pixel, which nn.LayerNorm would not take with these weights.
            LayerSpec::LayerNorm if !self.flat && weight.len() == 1 => format!("nn.GroupNorm(1, {channels})"),
            LayerSpec::LayerNorm => format!("nn.LayerNorm({weight:?})"),
            LayerSpec::GroupNorm { groups } => format!("nn.GroupNorm({groups}, {channels})"),
            LayerSpec::InstanceNorm => "nn.InstanceNorm2d(0)".to_string(),
            LayerSpec::Flatten => {
                self.flat = true;
                "nn.Flatten()".to_string()
            }
            LayerSpec::Residual { layers, .. } => self.residual(name, layers),
            LayerSpec::Embedding { columns, features } => {
                self.class(EMBEDDING);
                format!("Embedding({columns:?}, {features})")
            }
            LayerSpec::Attention { heads } => {
                self.class(ATTENTION);
                let channels = self.shape(&format!("{name}.out_proj.bias"));
                format!("Attention({}, {heads}, batch_first=True)", channels.first().unwrap_or(&0))
            }
        }
    }

    fn residual(&mut self, name: &str, layers: &[LayerSpec]) -> String {
        self.class(RESIDUAL);
        let mut arguments: Vec<String> = Vec::new();
        for (i, layer) in layers.iter().enumerate() {
            arguments.push(self.module(&format!("{name}.body.{i}"), layer));
        }
        match self.shape(&format!("{name}.skip.weight"))[..] {
            [outputs, inputs] => arguments.push(format!("skip=nn.Linear({inputs}, {outputs}, bias=False)")),
            [outputs, inputs, ..] => arguments.push(format!(
                "skip=nn.Conv2d({inputs}, {outputs}, 1, stride={}, bias=False)",
                self.network.skip_stride(name).unwrap_or(1)
            )),
            _ => {}
        }
        format!("Residual({})", arguments.join(", "))
    }
}

fn python(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn pair(size: Size) -> String {
    format!("({}, {})", size.pair()[0], size.pair()[1])
}

fn pooled(name: &str, kernel: Size, stride: Option<usize>) -> String {
    let stride = stride.map_or(String::new(), |stride| format!(", stride={stride}"));
    format!("nn.{name}({}{stride})", pair(kernel))
}
