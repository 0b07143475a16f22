"""A trainer of a team: verl's own, started by another program with settings of its own."""

import hydra
import ray
from verl.trainer.main_ppo import main as train


@ray.remote(num_gpus=99)
class Large:
    def ready(self):
        pass


@hydra.main(config_path="config", config_name="own", version_base=None)
def main(config):
    print("The note is", config.own.note)
    if config.own.stuck:
        ray.init()
        ray.get(Large.remote().ready.remote())
    train.__wrapped__(config)


if __name__ == "__main__":
    main()
