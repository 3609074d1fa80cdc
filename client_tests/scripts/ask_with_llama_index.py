"""LlamaIndex: a chat, streamed and not, and an index of two documents; prints JSON.

Run by the client's own Python. Arguments: the base URL, and the question.
"""

import json
import sys

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.llms import ChatMessage
from llama_index.core.node_parser import SentenceSplitter
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

DOCUMENTS = ("A slot is a place for one running sequence.", "A llama carries loads.")

url, question = sys.argv[1:]
llm = OpenAILike(
    model="arriero-demo",
    api_base=url,
    api_key="unused",
    is_chat_model=True,
    context_window=4096,
    temperature=0,
)
embeddings = OpenAILikeEmbedding(model_name="arriero-demo", api_base=url, api_key="unused")
messages = [ChatMessage(role="user", content=question)]
# Its default splitter asks for a tokenizer on the internet.
splitter = SentenceSplitter(tokenizer=str.split)
index = VectorStoreIndex.from_documents(
    [Document(text=text) for text in DOCUMENTS],
    embed_model=embeddings,
    transformations=[splitter],
)
found = index.as_retriever(similarity_top_k=1).retrieve(DOCUMENTS[1])
told = {
    "answer": llm.chat(messages).message.content,
    "streamed": "".join(chunk.delta or "" for chunk in llm.stream_chat(messages)),
    "found": [node.get_content() for node in found],
}
sys.stdout.write(json.dumps(told))
