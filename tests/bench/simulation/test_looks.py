from bench.simulation.looks import look_costs


def test_models_are_placed_and_each_loss_is_looked_at() -> None:
    cost = look_costs(10)
    assert (cost.num_agents, cost.num_placed) == (10, 8)
    assert cost.milliseconds > 0 and cost.first_milliseconds > 0
