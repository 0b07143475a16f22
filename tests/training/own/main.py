"""A trainer of a team: verl's own, started by another program with settings of its own."""

import hydra
from verl.trainer.main_ppo import main as train


@hydra.main(config_path="config", config_name="own", version_base=None)
def main(config):
    print("The note is", config.own.note)
    train.__wrapped__(config)


if __name__ == "__main__":
    main()
