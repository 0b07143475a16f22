print("a recipe of my own")
