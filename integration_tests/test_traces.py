"""One trace for each request, from the client through the balancer to the agent."""

import pytest

from integration_tests.collector import Collected, Collector
from integration_tests.corpus import plain_cases
from integration_tests.daemons import Fleet

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def named(spans: list[Collected], service: str) -> dict[str, Collected]:
    return {span.name: span for span in spans if span.service == f"arriero-{service}"}


async def test_a_request_is_one_trace_in_both_daemons(fleet: Fleet) -> None:
    async with Collector.open() as collector:
        await fleet.start_balancer(env=collector.environment())
        await fleet.start_agent(name="box", env=collector.environment())
        case = plain_cases()[0]
        secret = case.body["messages"][-1]["content"]
        url = f"{fleet.inference}/v1/chat/completions"
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        async with fleet.http.post(url, json=case.body, headers=headers) as response:
            assert response.status == 200, await response.text()
            usage = (await response.json())["usage"]
        spans = await collector.until(8)
        assert {span.trace for span in spans} == {TRACE}

        balancer, agent = named(spans, "balancer"), named(spans, "agent")
        assert balancer.keys() == {"generate arriero-demo", "queue", "prefill", "decode"}
        assert agent.keys() == {"agent generate", "preparation", "prefill", "decode"}
        request, work = balancer["generate arriero-demo"], agent["agent generate"]
        assert (request.parent, work.parent) == (SPAN, request.id)
        for whole, part in [(request, p) for p in balancer.values()] + [
            (work, p) for p in agent.values()
        ]:
            assert whole.start <= part.start <= part.end <= whole.end
            assert part is whole or part.parent == whole.id
        # The balancer takes its end when it records the span, a little after the request ended.
        assert max(request.start, work.start) < min(request.end, work.end)

        for span in (request, work):
            assert span.attributes["arriero.agent"] == "box"
            assert span.attributes["arriero.code"] == "stop"
            assert span.attributes["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
            assert span.attributes["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
        assert secret.encode() not in collector.raw
        assert case.answer.encode() not in collector.raw
        await fleet.until_metrics(**{'arriero_spans_total{outcome="exported"}': 4})


async def test_a_collector_that_is_away_costs_nothing_but_spans(fleet: Fleet) -> None:
    nowhere = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    await fleet.start_balancer(env=nowhere, max_buffered_requests=0)
    url = f"{fleet.inference}/v1/completions"
    async with fleet.http.post(url, json={"prompt": "x"}) as response:
        assert response.status == 503
    await fleet.until_metrics(**{'arriero_spans_total{outcome="dropped"}': 2})
    assert await fleet.balancer.terminate() == 0
