//! `selfspec run`: one prompt, or a chat.

use std::io::{self, IsTerminal};

use selfspec_hub::ModelName;

use crate::args::RunArgs;
use crate::failure::{Interrupted, too_long, usage};
use crate::generation::{Marks, Printer, generate, print_figures};
use crate::output::{self, Ui};
use crate::prompt_input::read_prompt;
use crate::stats::RunJson;
use crate::{chat, model, request};

pub(crate) fn run(args: &RunArgs, ui: &Ui) -> anyhow::Result<()> {
    // A prompt in the model's place is reported before standard input is waited for.
    ModelName::parse(&args.model.model)?;
    let Some(text) = read_prompt(&args.prompt)? else { return chat(args, ui) };
    for flag in request::without_effect(&args.sampling) {
        ui.warn(&format!("{flag} has no effect at temperature 0"));
    }
    let model = model::open(&args.model.model, args.context, &args.compute, ui)?;
    let style = request::style(args, model.info(), ui)?;
    let prompt = style.prompt(args.system.as_deref(), &text);
    let request = request::build(args, &model, prompt)?;
    let speculation = request.speculation.clone();

    let printer = if args.output.json { None } else { Some(Printer::new(Marks::new(args, ui))) };
    let most = model.info().context;
    let (completion, interrupted) = generate(&model, request, printer).map_err(|e| too_long(e, most))?;
    if args.output.json {
        output::print_json(&RunJson::new(&speculation, &completion))?;
    }
    print_figures(args, ui, &speculation, &completion);
    if interrupted { Err(Interrupted.into()) } else { Ok(()) }
}

fn chat(args: &RunArgs, ui: &Ui) -> anyhow::Result<()> {
    if args.output.json {
        return Err(usage("--json needs a prompt", "give one with -p, --prompt-file or on standard input"));
    }
    if !io::stdout().is_terminal() {
        return Err(usage("a chat needs a terminal", "give a prompt with -p, --prompt-file or on standard input"));
    }
    chat::run(args, ui)
}
