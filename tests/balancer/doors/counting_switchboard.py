"""A fake switchboard that answers every question at once, with the same outcome."""

from arriero.balancer.fleet.asked import Question
from arriero.balancer.fleet.inquiry import Inquiry, Outcome
from arriero.shared.inference import RequestId
from tests.balancer.doors.fake_switchboard import FakeSwitchboard


class CountingSwitchboard(FakeSwitchboard):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome
        self.questions: list[Question] = []

    def ask(self, question: Question) -> Inquiry:
        self.questions.append(question)
        inquiry = Inquiry(RequestId("q"), lambda _id: None)
        inquiry.settle(self.outcome)
        return inquiry
