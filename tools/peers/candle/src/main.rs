//! Times candle on one GGUF file: prefill and plain decoding, as one JSON object of seconds a
//! token.
//!
//! Its quantized models return the logits of the last row only, so that a pass over m rows that
//! judges drafts cannot be timed. Threads are set by `RAYON_NUM_THREADS` and `CANDLE_NUM_THREADS`:
//! candle reads them once, before `main` could change them.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_gemma3, quantized_llama, quantized_qwen2, quantized_qwen3};

/// Tokens of the measured prefill.
const PROMPT: usize = 512;
/// Token ids stay below this, or below the vocabulary where that is smaller: the same ids as in
/// `run.py`.
const IDS: usize = 30_000;

enum Model {
    Llama(quantized_llama::ModelWeights),
    Qwen2(quantized_qwen2::ModelWeights),
    Qwen3(quantized_qwen3::ModelWeights),
    Gemma3(quantized_gemma3::ModelWeights),
}

impl Model {
    fn load(path: &str) -> Result<(Self, usize), Box<dyn Error>> {
        let mut file = BufReader::new(File::open(path)?);
        let content = Content::read(&mut file)?;
        let vocabulary = content.tensor_infos.get("token_embd.weight").ok_or("no token_embd.weight")?.shape.dims()[0];
        let architecture =
            content.metadata.get("general.architecture").ok_or("no general.architecture")?.to_string()?.clone();
        let device = Device::Cpu;
        let model = match architecture.as_str() {
            "llama" => Self::Llama(quantized_llama::ModelWeights::from_gguf(content, &mut file, &device)?),
            "qwen2" => Self::Qwen2(quantized_qwen2::ModelWeights::from_gguf(content, &mut file, &device)?),
            "qwen3" => Self::Qwen3(quantized_qwen3::ModelWeights::from_gguf(content, &mut file, &device)?),
            "gemma3" => Self::Gemma3(quantized_gemma3::ModelWeights::from_gguf(content, &mut file, &device)?),
            other => {
                return Err(format!("this program runs llama, qwen2, qwen3 and gemma3 with candle, not {other}").into());
            }
        };
        Ok((model, vocabulary))
    }

    /// One pass over `tokens` from `position` on, which is 0 or where the last pass ended; seconds.
    fn step(&mut self, position: usize, tokens: &[u32]) -> Result<f64, Box<dyn Error>> {
        if position == 0
            && let Self::Qwen3(model) = self
        {
            model.clear_kv_cache(); // the others forget by themselves at position 0
        }
        let start = Instant::now();
        let rows = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        let logits = match self {
            Self::Llama(model) => model.forward(&rows, position),
            Self::Qwen2(model) => model.forward(&rows, position),
            Self::Qwen3(model) => model.forward(&rows, position),
            Self::Gemma3(model) => model.forward(&rows, position),
        }?;
        let seconds = start.elapsed().as_secs_f64();
        let sum = logits.sum_all()?.to_scalar::<f32>()?;
        if sum.is_finite() { Ok(seconds) } else { Err("the logits are not finite".into()) }
    }

    /// Seconds a token of prefill, and of decoding from `context` positions on, the context growing
    /// as in real use.
    fn measure(&mut self, prompt: &[u32], context: usize, passes: usize) -> Result<(f64, f64), Box<dyn Error>> {
        let prefill = self.step(0, &prompt[..PROMPT])? / PROMPT as f64;
        for start in (0..context).step_by(PROMPT) {
            self.step(start, &prompt[start..context.min(start + PROMPT)])?;
        }
        let mut times = Vec::with_capacity(passes);
        for i in 0..passes {
            times.push(self.step(context + i, &prompt[i..=i])?);
        }
        times.sort_by(f64::total_cmp);
        Ok((prefill, times[passes / 2]))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, path, context, passes] = args.as_slice() else {
        return Err("usage: peers-candle MODEL.gguf CONTEXT PASSES".into());
    };
    let (context, passes): (usize, usize) = (context.parse()?, passes.parse()?);
    let (mut model, vocabulary) = Model::load(path)?;
    let prompt: Vec<u32> =
        (0..PROMPT.max(context).max(passes)).map(|i| ((i * 7919 + 13) % vocabulary.min(IDS)) as u32).collect();
    model.measure(&prompt, context, 4)?; // warm-up
    let (prefill, decode) = model.measure(&prompt, context, passes.max(1))?;
    // What candle's own code looks at is chosen at run time; the rest of it (activations, norms,
    // attention) by the compiler's target.
    let compiled = if cfg!(target_feature = "avx512f") {
        "avx512"
    } else if cfg!(target_feature = "avx2") {
        "avx2"
    } else {
        "baseline"
    };
    println!(r#"{{"prefill": {prefill:e}, "decode": {decode:e}, "compiled": "{compiled}"}}"#);
    Ok(())
}
