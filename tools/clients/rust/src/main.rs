//! Holds a running server to what async-openai expects. See ../README.md.

use std::error::Error;
use std::process::ExitCode;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::types::chat::{
    ChatCompletionMessageToolCalls, ChatCompletionRequestUserMessage, ChatCompletionStreamOptions, ChatCompletionTool,
    ChatCompletionToolChoiceOption, ChatCompletionTools, CreateChatCompletionRequest, CreateChatCompletionRequestArgs,
    FunctionObject, ResponseFormat, ResponseFormatJsonSchema, ToolChoiceOptions,
};
use async_openai::types::completions::CreateCompletionRequestArgs;
use futures_util::StreamExt;
use serde_json::{Value, json};

type Checked = Result<(), Box<dyn Error>>;

struct Server {
    client: Client<OpenAIConfig>,
    model: String,
}

/// A request that every check begins with.
fn usual(server: &Server) -> Result<CreateChatCompletionRequestArgs, Box<dyn Error>> {
    let mut args = CreateChatCompletionRequestArgs::default();
    let question = ChatCompletionRequestUserMessage::from("What is the capital of France?");
    args.model(&server.model).messages(vec![question.into()]).temperature(0.0).max_completion_tokens(32_u32);
    Ok(args)
}

async fn text(server: &Server, request: CreateChatCompletionRequest) -> Result<String, Box<dyn Error>> {
    let answer = server.client.chat().create(request).await?;
    let choice = answer.choices.into_iter().next().ok_or("no choice")?;
    Ok(choice.message.content.ok_or("no content")?)
}

async fn chat(server: &Server) -> Checked {
    let text = text(server, usual(server)?.build()?).await?;
    if text.is_empty() { Err("an empty answer".into()) } else { Ok(()) }
}

async fn chat_stream(server: &Server) -> Checked {
    let whole = text(server, usual(server)?.build()?).await?;
    let options = ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None };
    let mut stream = server.client.chat().create_stream(usual(server)?.stream(true).stream_options(options).build()?).await?;
    let (mut streamed, mut usage) = (String::new(), None);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        streamed.extend(chunk.choices.iter().filter_map(|choice| choice.delta.content.as_deref()));
        usage = chunk.usage.or(usage);
    }
    if usage.is_none_or(|usage| usage.completion_tokens == 0) {
        return Err("no usage".into());
    }
    if streamed == whole { Ok(()) } else { Err(format!("{streamed:?} is not {whole:?}").into()) }
}

async fn logprobs(server: &Server) -> Checked {
    let answer = server.client.chat().create(usual(server)?.logprobs(true).top_logprobs(2).build()?).await?;
    let tokens = answer.choices.into_iter().next().and_then(|c| c.logprobs).and_then(|l| l.content).unwrap_or_default();
    if tokens.iter().any(|token| token.top_logprobs.len() != 2) || tokens.is_empty() {
        return Err(format!("{} tokens", tokens.len()).into());
    }
    Ok(())
}

async fn completions(server: &Server) -> Checked {
    let request = CreateCompletionRequestArgs::default()
        .model(&server.model)
        .prompt("Once upon a time")
        .temperature(0.0)
        .max_tokens(8_u32)
        .build()?;
    let answer = server.client.completions().create(request).await?;
    if answer.choices.first().is_some_and(|choice| !choice.text.is_empty()) { Ok(()) } else { Err("no text".into()) }
}

async fn completions_logprobs(server: &Server) -> Checked {
    let request = CreateCompletionRequestArgs::default()
        .model(&server.model)
        .prompt("Once upon a time")
        .logprobs(2)
        .max_tokens(4_u32)
        .build()?;
    let answer = server.client.completions().create(request).await?;
    let logprobs = answer.choices.into_iter().next().and_then(|choice| choice.logprobs).ok_or("no logprobs")?;
    if logprobs.tokens.is_empty() { Err("no tokens".into()) } else { Ok(()) }
}

/// A field that the library does not know goes through its methods for types of one's own.
async fn speculation(server: &Server) -> Checked {
    let mut texts = Vec::new();
    for speculation in ["auto", "off"] {
        let mut request = serde_json::to_value(usual(server)?.temperature(1.0).seed(7_i64).build()?)?;
        request["speculation"] = speculation.into();
        let answer: Value = server.client.chat().create_byot(request).await?;
        texts.push(answer["choices"][0]["message"]["content"].as_str().ok_or("no content")?.to_owned());
    }
    if texts[0] == texts[1] { Ok(()) } else { Err(format!("{texts:?}").into()) }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "city": { "type": "string", "maxLength": 40 } },
        "required": ["city"],
        "additionalProperties": false,
    })
}

async fn json_schema(server: &Server) -> Checked {
    let json_schema =
        ResponseFormatJsonSchema { name: "city".to_owned(), schema: schema(), strict: Some(true), description: None };
    let mut request = usual(server)?;
    request.response_format(ResponseFormat::JsonSchema { json_schema }).max_completion_tokens(128_u32);
    let value: Value = serde_json::from_str(&text(server, request.build()?).await?)?;
    if value["city"].is_string() { Ok(()) } else { Err(value.to_string().into()) }
}

async fn tools(server: &Server) -> Checked {
    let function = FunctionObject {
        name: "get_weather".to_owned(),
        description: Some("The weather in a city".to_owned()),
        parameters: Some(schema()),
        strict: None,
    };
    let mut request = usual(server)?;
    request
        .tools(vec![ChatCompletionTools::Function(ChatCompletionTool { function })])
        .tool_choice(ChatCompletionToolChoiceOption::Mode(ToolChoiceOptions::Required))
        .max_completion_tokens(128_u32);
    let answer = server.client.chat().create(request.build()?).await?;
    let calls = answer.choices.into_iter().next().and_then(|choice| choice.message.tool_calls).unwrap_or_default();
    let Some(ChatCompletionMessageToolCalls::Function(call)) = calls.first() else { return Err("no call".into()) };
    let arguments: Value = serde_json::from_str(&call.function.arguments)?;
    if call.function.name == "get_weather" && arguments["city"].is_string() {
        Ok(())
    } else {
        Err(format!("{call:?}").into())
    }
}

async fn errors(server: &Server) -> Checked {
    let mut request = usual(server)?;
    match server.client.chat().create(request.model("no-such-model").build()?).await {
        Err(async_openai::error::OpenAIError::ApiError(error)) if error.to_string().contains("no-such-model") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or_else(|| "http://127.0.0.1:8080/v1".to_owned());
    let key = words.next().unwrap_or_else(|| "none".to_owned());
    let client = Client::with_config(OpenAIConfig::new().with_api_base(url).with_api_key(key));
    let list = client.models().list().await?;
    let model = list.data.first().ok_or("the server lists no model")?.id.clone();
    let server = Server { client, model };
    let results = [
        ("chat", chat(&server).await),
        ("chat_stream", chat_stream(&server).await),
        ("logprobs", logprobs(&server).await),
        ("completions", completions(&server).await),
        ("completions_logprobs", completions_logprobs(&server).await),
        ("speculation", speculation(&server).await),
        ("json_schema", json_schema(&server).await),
        ("tools", tools(&server).await),
        ("errors", errors(&server).await),
    ];
    for (name, result) in &results {
        match result {
            Ok(()) => println!("ok      {name}"),
            Err(error) => println!("FAILED  {name}: {error}"),
        }
    }
    let passed = results.iter().filter(|(_, result)| result.is_ok()).count();
    println!("{passed} of {} checks passed", results.len());
    Ok(ExitCode::from(u8::from(passed < results.len())))
}
